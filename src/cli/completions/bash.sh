# Completion of h5dir in bash: the program that is completed is asked for the candidates.
_h5dir() {
    local program=${1:-${COMP_WORDS[0]}} line=${COMP_LINE:0:COMP_POINT} text=${2-${COMP_WORDS[COMP_CWORD]}} word
    [[ $program != '~/'* ]] || program=$HOME/${program#'~/'}
    COMPREPLY=()
    if [[ -z $line ]]; then
        # Called by a script: parts of a word, such as FILE, a colon and /PATH, belong together.
        for word in "${COMP_WORDS[@]:0:COMP_CWORD+1}"; do
            [[ -z $line || $line == *[:=] || $word == [:=]* ]] || line+=' '
            line+=$word
        done
    fi
    [[ $text != [:=] ]] || text=
    mapfile -t COMPREPLY < <(COMPLETE=bash _H5DIR_LINE=$line _H5DIR_TEXT=$text "$program" -- "${COMP_WORDS[@]}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[/:=,] ]]; then
        compopt -o nospace 2>/dev/null
    fi
    return 0
}
complete -o nosort -F _h5dir h5dir 2>/dev/null || complete -F _h5dir h5dir
