# Completion of h5dir in fish: the program that is completed is asked for the candidates.
function __h5dir_candidates
    set -l before (commandline --current-process --tokenize --cut-at-cursor)
    set -l text (commandline --current-token --cut-at-cursor | string collect)
    set -l program (string replace --regex '^~/' "$HOME/" -- $before[1])
    COMPLETE=fish _H5DIR_TEXT="$text" $program -- $before '' 2>/dev/null
end
complete --keep-order --exclusive --command h5dir --arguments '(__h5dir_candidates)'
