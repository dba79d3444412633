#compdef h5dir
# Completion of h5dir in zsh: the program that is completed is asked for the candidates.
_h5dir() {
    local program=${words[1]} current="${(Q)${:-$IPREFIX$PREFIX}}" kept= line
    local -a plain open
    [[ $program != \~/* ]] || program=$HOME/${program#\~/}
    # Listings show the last part of a path.
    if [[ $PREFIX == */* ]]; then
        kept="${(Q)${:-$IPREFIX${PREFIX%/*}/}}"
        compset -P '*/'
    elif [[ -n $IPREFIX ]]; then
        kept="${(Q)IPREFIX}"
    fi
    # Each line: whether a space follows, the value, a colon and what it is.
    for line in "${(@f)$(COMPLETE=zsh _H5DIR_KEPT=$kept _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) "$program" -- "${(@Q)words[1,CURRENT - 1]}" "$current" 2>/dev/null)}"; do
        case $line in
        +*) plain+=("${line#+}") ;;
        -*) open+=("${line#-}") ;;
        esac
    done
    (( $#open )) && _describe -V 'candidates that go on' open -S ''
    (( $#plain )) && _describe -V 'candidates' plain
    (( $#open + $#plain ))
}
if [[ ${funcstack[1]} == _h5dir ]]; then _h5dir "$@"; else compdef _h5dir h5dir; fi
