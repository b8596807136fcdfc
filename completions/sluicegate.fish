# Made by docs/generate; do not edit.

# Whether the words so far name this command and, if told, its positions from first to last.
function __sluicegate_at -a wanted first last
    set -l path ''
    set -l position 0
    set -l is_value 0
    set -l is_literal 0
    for word in (commandline -opc)[2..-1]
        if test $is_value = 1
            set is_value 0
        else if test $is_literal = 0; and test "$word" = --
            set is_literal 1
        else if test $is_literal = 0; and string match -q -- '-?*' $word
            __sluicegate_takes_value "$path $word"; and set is_value 1
        else if __sluicegate_is_group $path
            set path (string trim -- "$path $word")
            set is_literal 0
        else
            set position (math $position + 1)
        end
    end
    test "$path" = "$wanted"
    and test $position -ge "0$first"
    and test -z "$last" -o $position -le "0$last"
end

function __sluicegate_is_group -a wanted
    contains -- "$wanted" \
        '' \
        locks
end

function __sluicegate_takes_value -a wanted
    contains -- "$wanted" \
        ' --home' \
        ' --config' \
        'init --reason' \
        'init --home' \
        'init --config' \
        'demo --kills' \
        'demo --home' \
        'demo --config' \
        'status --as' \
        'status --home' \
        'status --config' \
        'locks --home' \
        'locks --config' \
        'locks list --home' \
        'locks list --config' \
        'doctor --home' \
        'doctor --config'
end

complete -c sluicegate -f
complete -c sluicegate -n '__sluicegate_at ""' -a init -d 'make a home and a commented sluicegate.toml'
complete -c sluicegate -n '__sluicegate_at ""' -a demo -d 'show on this machine that kills lose nothing that was acknowledged'
complete -c sluicegate -n '__sluicegate_at ""' -a status -d 'show every named target, or one in depth'
complete -c sluicegate -n '__sluicegate_at ""' -a locks -d 'see who holds which lock'
complete -c sluicegate -n '__sluicegate_at ""' -a doctor -d 'check Java, Spark, file system, clock and PATH'
complete -c sluicegate -n '__sluicegate_at ""' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at ""' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at ""' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at ""' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at ""' -l version -d 'show the version'
complete -c sluicegate -n '__sluicegate_at ""' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "init"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "init"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "init"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "init"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "init"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "init"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "init"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "init"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "demo"' -l kills -r -f -d 'how often to kill a writer [default: 10; 1<=x<=10000]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "demo"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "demo"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "status" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "status"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint' -d 'do not detect the kind'
complete -c sluicegate -n '__sluicegate_at "status"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "status"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "status"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "status"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "status"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "locks"' -a list -d 'list the locks of the home and who holds them'
complete -c sluicegate -n '__sluicegate_at "locks"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "locks"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "locks"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "locks"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "locks"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "locks list" 0 0' -f -a '(__fish_complete_directories (commandline -ct))'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -s h -l help -d 'show this help'
complete -c sg -w sluicegate
