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
        checkpoint \
        offsets \
        dedup \
        state \
        shards \
        locks
end

function __sluicegate_takes_value -a wanted
    contains -- "$wanted" \
        ' --home' \
        ' --config' \
        'init --store' \
        'init --stream' \
        'init --offsets' \
        'init --from' \
        'init --reason' \
        'init --home' \
        'init --config' \
        'demo --kills' \
        'demo --events' \
        'demo --home' \
        'demo --config' \
        'status --as' \
        'status --home' \
        'status --config' \
        'explain --home' \
        'explain --config' \
        'checkpoint --home' \
        'checkpoint --config' \
        'checkpoint inspect --snapshot' \
        'checkpoint inspect --as' \
        'checkpoint inspect --home' \
        'checkpoint inspect --config' \
        'checkpoint list --last' \
        'checkpoint list --as' \
        'checkpoint list --home' \
        'checkpoint list --config' \
        'checkpoint verify --sink' \
        'checkpoint verify --read-data-subset' \
        'checkpoint verify --max-duration' \
        'checkpoint verify --as' \
        'checkpoint verify --home' \
        'checkpoint verify --config' \
        'checkpoint diff --home' \
        'checkpoint diff --config' \
        'checkpoint repair --sink' \
        'checkpoint repair --offsets' \
        'checkpoint repair --query-id' \
        'checkpoint repair --as' \
        'checkpoint repair --reason' \
        'checkpoint repair --plan-out' \
        'checkpoint repair --expires' \
        'checkpoint repair --home' \
        'checkpoint repair --config' \
        'checkpoint rollback --to' \
        'checkpoint rollback --to-datetime' \
        'checkpoint rollback --sink' \
        'checkpoint rollback --into' \
        'checkpoint rollback --as' \
        'checkpoint rollback --reason' \
        'checkpoint rollback --plan-out' \
        'checkpoint rollback --expires' \
        'checkpoint rollback --home' \
        'checkpoint rollback --config' \
        'checkpoint prune --keep' \
        'checkpoint prune --keep-within' \
        'checkpoint prune --as' \
        'checkpoint prune --reason' \
        'checkpoint prune --plan-out' \
        'checkpoint prune --expires' \
        'checkpoint prune --home' \
        'checkpoint prune --config' \
        'checkpoint import --reason' \
        'checkpoint import --plan-out' \
        'checkpoint import --expires' \
        'checkpoint import --home' \
        'checkpoint import --config' \
        'checkpoint export --snapshot' \
        'checkpoint export --as' \
        'checkpoint export --reason' \
        'checkpoint export --home' \
        'checkpoint export --config' \
        'checkpoint seed --offsets' \
        'checkpoint seed --format' \
        'checkpoint seed --source-offset' \
        'checkpoint seed --reason' \
        'checkpoint seed --home' \
        'checkpoint seed --config' \
        'checkpoint relocate --map' \
        'checkpoint relocate --as' \
        'checkpoint relocate --reason' \
        'checkpoint relocate --home' \
        'checkpoint relocate --config' \
        'offsets --home' \
        'offsets --config' \
        'offsets show --batch' \
        'offsets show --consumer' \
        'offsets show --as' \
        'offsets show --home' \
        'offsets show --config' \
        'offsets reset --consumer' \
        'offsets reset --topic' \
        'offsets reset --to-offset' \
        'offsets reset --shift-by' \
        'offsets reset --to-datetime' \
        'offsets reset --by-duration' \
        'offsets reset --from-file' \
        'offsets reset --sink' \
        'offsets reset --into' \
        'offsets reset --as' \
        'offsets reset --reason' \
        'offsets reset --plan-out' \
        'offsets reset --expires' \
        'offsets reset --home' \
        'offsets reset --config' \
        'offsets lag --end-offsets' \
        'offsets lag --consumer' \
        'offsets lag --as' \
        'offsets lag --home' \
        'offsets lag --config' \
        'offsets export --format' \
        'offsets export --batch' \
        'offsets export --consumer' \
        'offsets export --into' \
        'offsets export --as' \
        'offsets export --reason' \
        'offsets export --home' \
        'offsets export --config' \
        'offsets import --consumer' \
        'offsets import --format' \
        'offsets import --as' \
        'offsets import --reason' \
        'offsets import --plan-out' \
        'offsets import --expires' \
        'offsets import --home' \
        'offsets import --config' \
        'offsets delete --consumer' \
        'offsets delete --topic' \
        'offsets delete --as' \
        'offsets delete --reason' \
        'offsets delete --plan-out' \
        'offsets delete --expires' \
        'offsets delete --home' \
        'offsets delete --config' \
        'dedup --home' \
        'dedup --config' \
        'dedup stats --as' \
        'dedup stats --home' \
        'dedup stats --config' \
        'dedup check --as' \
        'dedup check --home' \
        'dedup check --config' \
        'dedup compact --retain' \
        'dedup compact --as' \
        'dedup compact --reason' \
        'dedup compact --plan-out' \
        'dedup compact --expires' \
        'dedup compact --home' \
        'dedup compact --config' \
        'state --home' \
        'state --config' \
        'state show --snapshot' \
        'state show --shard' \
        'state show --as' \
        'state show --home' \
        'state show --config' \
        'state query --snapshot' \
        'state query --shard' \
        'state query --limit' \
        'state query --as' \
        'state query --home' \
        'state query --config' \
        'state compact --as' \
        'state compact --reason' \
        'state compact --plan-out' \
        'state compact --expires' \
        'state compact --home' \
        'state compact --config' \
        'shards --home' \
        'shards --config' \
        'shards show --weights' \
        'shards show --as' \
        'shards show --home' \
        'shards show --config' \
        'shards locate --as' \
        'shards locate --home' \
        'shards locate --config' \
        'shards join --capacity' \
        'shards join --max-moves' \
        'shards join --output' \
        'shards join --as' \
        'shards join --reason' \
        'shards join --plan-out' \
        'shards join --expires' \
        'shards join --home' \
        'shards join --config' \
        'shards leave --max-moves' \
        'shards leave --output' \
        'shards leave --as' \
        'shards leave --reason' \
        'shards leave --plan-out' \
        'shards leave --expires' \
        'shards leave --home' \
        'shards leave --config' \
        'shards weights --weights' \
        'shards weights --limit' \
        'shards weights --as' \
        'shards weights --home' \
        'shards weights --config' \
        'shards rebalance --weights' \
        'shards rebalance --max-moves' \
        'shards rebalance --max-imbalance' \
        'shards rebalance --capacity' \
        'shards rebalance --from-file' \
        'shards rebalance --output' \
        'shards rebalance --as' \
        'shards rebalance --reason' \
        'shards rebalance --plan-out' \
        'shards rebalance --expires' \
        'shards rebalance --home' \
        'shards rebalance --config' \
        'audit --sink' \
        'audit --since' \
        'audit --as' \
        'audit --home' \
        'audit --config' \
        'submit --app' \
        'submit --checkpoint' \
        'submit --offsets-store' \
        'submit --consumer' \
        'submit --master' \
        'submit --class' \
        'submit --conf' \
        'submit --py-files' \
        'submit --jars' \
        'submit --packages' \
        'submit --spark-submit' \
        'submit --interval' \
        'submit --log-dir' \
        'submit --home' \
        'submit --config' \
        'maintain --metrics-file' \
        'maintain --reason' \
        'maintain --home' \
        'maintain --config' \
        'history --consumer' \
        'history --limit' \
        'history --as' \
        'history --home' \
        'history --config' \
        'undo --op' \
        'undo --consumer' \
        'undo --as' \
        'undo --reason' \
        'undo --plan-out' \
        'undo --expires' \
        'undo --home' \
        'undo --config' \
        'apply --expect' \
        'apply --reason' \
        'apply --home' \
        'apply --config' \
        'locks --home' \
        'locks --config' \
        'locks list --home' \
        'locks list --config' \
        'locks break --reason' \
        'locks break --home' \
        'locks break --config' \
        'doctor --home' \
        'doctor --config'
end

complete -c sluicegate -f
complete -c sluicegate -n '__sluicegate_at ""' -a init -d 'create a home and a commented sluicegate.toml'
complete -c sluicegate -n '__sluicegate_at ""' -a demo -d 'show on this machine that killing a job loses nothing'
complete -c sluicegate -n '__sluicegate_at ""' -a status -d 'show every named target, or one in detail'
complete -c sluicegate -n '__sluicegate_at ""' -a explain -d 'find the cause of an error in a driver log, and the next command'
complete -c sluicegate -n '__sluicegate_at ""' -a checkpoint -d 'inspect, verify, repair and move checkpoints'
complete -c sluicegate -n '__sluicegate_at ""' -a offsets -d 'show, move, export and import positions'
complete -c sluicegate -n '__sluicegate_at ""' -a dedup -d 'inspect and compact the dedup log of gated streams'
complete -c sluicegate -n '__sluicegate_at ""' -a state -d 'inspect and compact the state of gated streams'
complete -c sluicegate -n '__sluicegate_at ""' -a shards -d 'assign shards to nodes with the fewest possible moves'
complete -c sluicegate -n '__sluicegate_at ""' -a audit -d 'check whether data was lost or duplicated'
complete -c sluicegate -n '__sluicegate_at ""' -a submit -d 'start a Spark application at the right position, and watch it'
complete -c sluicegate -n '__sluicegate_at ""' -a maintain -d 'verify, compact, prune and collect; for cron, silent on success'
complete -c sluicegate -n '__sluicegate_at ""' -a history -d 'list the changes of a target'
complete -c sluicegate -n '__sluicegate_at ""' -a undo -d 'revert a change'
complete -c sluicegate -n '__sluicegate_at ""' -a apply -d 'apply a saved plan'
complete -c sluicegate -n '__sluicegate_at ""' -a locks -d 'list locks with their holders, and clear stale ones'
complete -c sluicegate -n '__sluicegate_at ""' -a doctor -d 'check Java, Spark, file system, clock and PATH'
complete -c sluicegate -n '__sluicegate_at ""' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at ""' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at ""' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at ""' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at ""' -l version -d 'show the version'
complete -c sluicegate -n '__sluicegate_at ""' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "init"' -l store -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'create an offset store there instead'
complete -c sluicegate -n '__sluicegate_at "init"' -l stream -r -f -d 'create this stream instead'
complete -c sluicegate -n '__sluicegate_at "init"' -l offsets -r -F -d 'start offsets of the stream: JSON, CSV, rpk'
complete -c sluicegate -n '__sluicegate_at "init"' -l from -r -f -a 'earliest latest' -d 'where the stream starts in its log'
complete -c sluicegate -n '__sluicegate_at "init"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "init"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "init"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "init"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "init"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "init"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "init"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "init"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "demo"' -l kills -r -f -d 'how often to kill the job [default: 3; 0<=x<=1000]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l events -r -f -d 'events to produce [default: 200000; 1000<=x<=100000000]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "demo"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "demo"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "demo"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "status" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "status"' -s w -l watch -d 'refresh every 2 s until Ctrl-C'
complete -c sluicegate -n '__sluicegate_at "status"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "status"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "status"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "status"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "status"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "status"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "explain" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "explain"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "explain"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "explain"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "explain"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "explain"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a inspect -d 'show the position and content of a checkpoint'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a list -d 'list its batches, or its snapshots'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a verify -d 'check that it is intact; findings name the repair'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a diff -d 'compare two batches, snapshots or checkpoints'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a repair -d 'repair what verify finds, or show the options'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a rollback -d 'roll back to an older batch or snapshot, completely'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a prune -d 'remove old snapshots, and files that nothing refers to'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a import -d 'import a legacy checkpoint into a gated stream'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a export -d 'write a snapshot of a gated stream as a legacy checkpoint'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a seed -d 'create a checkpoint that starts at chosen offsets'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -a relocate -d 'copy a checkpoint to a place where it can be started'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l snapshot -r -f -d 'gated streams only: show snapshot N; default: the newest'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint inspect"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint list" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l last -r -f -d 'how many, newest last [default: 20; x>=1]'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint list"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l sink -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory of its file sink; as configured by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l read-data -d 'decode all state files'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l read-data-subset -r -f -d 'gated streams only: read this part'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l max-duration -r -f -d 'gated streams only: stop after this time, continue next time'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint verify"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint diff" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint diff" 1 1' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint diff"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint diff"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint diff"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint diff"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint diff"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l sink -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory of its file sink; as configured by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l read-data -d 'decode all state first; takes longer'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l offsets -r -F -d 'end offsets of the damaged batch, if known'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l query-id -r -f -d 'id of the query, if metadata is lost'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l withdraw -d 'take back output that a restored chain does not know'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l adopt -d 'keep that output; apply its events without publishing them'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l writer-gone -d 'confirm that the job has stopped although files changed recently'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint repair"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l to -r -f -d 'to this batch or snapshot'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l to-datetime -r -f -d 'to the last batch or snapshot at or before this time'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l sink -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory of its file sink; as configured by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l into -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'change a copy there; leave the original unchanged'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l writer-gone -d 'confirm that the job has stopped although files changed recently'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l unchecked -d 'do not ask the source whether it holds what is read again'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint rollback"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l keep -r -f -d 'keep the newest N snapshots [x>=1]'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l keep-within -r -f -d 'keep snapshots younger than this: 7d or PT12H'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint prune"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint import" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint import"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint export" 1 1' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l snapshot -r -f -d 'write snapshot N; default: the newest'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint export"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed" 0 0' -f -a '(__fish_complete_directories (commandline -ct))'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l offsets -r -F -d 'start offsets: JSON, CSV or rpk'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l format -r -f -a 'spark csv rpk' -d 'format of the file; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l source-offset -r -f -d 'start offset, as its source writes it'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint seed"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate" 1 1' -f -a '(__fish_complete_directories (commandline -ct))'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l map -r -f -d 'an input path that has moved as well'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "checkpoint relocate"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a show -d 'show the positions of a target'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a reset -d 'move positions: to an offset, by a number, to a time'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a lag -d 'show how far positions are behind the end'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a export -d 'write positions as Spark JSON, Kafka CSV or rpk text'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a import -d 'set positions from a file or from legacy offset files'
complete -c sluicegate -n '__sluicegate_at "offsets"' -a delete -d 'delete positions'
complete -c sluicegate -n '__sluicegate_at "offsets"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets show" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l batch -r -f -d 'positions of batch or snapshot N'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets show"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets reset" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l topic -r -f -d 'only this topic or its partitions'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l all-topics -d 'every topic'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l to-earliest -d 'to the oldest event in the log'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l to-latest -d 'to the end of the log'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l to-current -d 'to the current position'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l to-offset -r -f -d 'to this offset'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l shift-by -r -f -d 'back or forward by this many events'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l to-datetime -r -f -d 'to the position at a time: 2026-11-16T02:00:00Z'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l by-duration -r -f -d 'to the position this long ago: PT1H, 90min'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l from-file -r -F -d 'to the positions in a file: JSON, CSV, rpk'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l clamp -d 'stop at the first or last offset instead of refusing'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l skip-seen -d 'gated streams only: apply only new events'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l reprocess -d 'gated streams only: roll back and apply events again'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l unchecked -d 'do not ask the source whether it holds what is read again'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l sink -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory of its file sink; as configured by default'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l into -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'change a copy there; leave the original unchanged'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l writer-gone -d 'confirm that the job has stopped although files changed recently'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets reset"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets lag" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l end-offsets -r -F -d 'end offsets (JSON, CSV, rpk); - for standard input'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets lag"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets export" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l format -r -f -a 'spark csv rpk' -d 'output format [default: spark]'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l batch -r -f -d 'positions of batch or snapshot N'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l into -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'write legacy offset files to this directory'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets export"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets import" 1 1' -f -a '(__fish_complete_directories (commandline -ct))'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l consumer -r -f -d 'consumer that gets the positions [required]'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l format -r -f -a 'spark csv rpk' -d 'format of the file; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l replace -d 'delete positions that are not in the file'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets import"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "offsets delete" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l topic -r -f -d 'only this topic or its partitions'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l all-topics -d 'every topic'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "offsets delete"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "dedup"' -a stats -d 'show the content and size of the dedup log'
complete -c sluicegate -n '__sluicegate_at "dedup"' -a check -d 'check whether a stamp (event id) was seen, and when'
complete -c sluicegate -n '__sluicegate_at "dedup"' -a compact -d 'merge the dedup log; drop old producers'
complete -c sluicegate -n '__sluicegate_at "dedup"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "dedup"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "dedup"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "dedup"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "dedup"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "dedup stats" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "dedup stats"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "dedup check"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "dedup compact" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l retain -r -f -d 'drop producers that were idle for this long'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "dedup compact"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "state"' -a show -d 'show keys and bytes of every shard'
complete -c sluicegate -n '__sluicegate_at "state"' -a query -d 'look keys up in the state'
complete -c sluicegate -n '__sluicegate_at "state"' -a compact -d 'merge the deltas of every shard'
complete -c sluicegate -n '__sluicegate_at "state"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "state"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "state"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "state"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "state"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "state show" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "state show"' -l snapshot -r -f -d 'at snapshot N; default: the newest'
complete -c sluicegate -n '__sluicegate_at "state show"' -l shard -r -f -d 'only this shard'
complete -c sluicegate -n '__sluicegate_at "state show"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "state show"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "state show"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "state show"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "state show"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "state show"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "state query"' -l snapshot -r -f -d 'at snapshot N; default: the newest'
complete -c sluicegate -n '__sluicegate_at "state query"' -l shard -r -f -d 'only this shard'
complete -c sluicegate -n '__sluicegate_at "state query"' -l limit -r -f -d 'at most this many keys; 0 for all [default: 20; x>=0]'
complete -c sluicegate -n '__sluicegate_at "state query"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "state query"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "state query"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "state query"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "state query"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "state query"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "state compact" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "state compact"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "state compact"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "state compact"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "state compact"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "state compact"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards"' -a show -d 'show the load of every node'
complete -c sluicegate -n '__sluicegate_at "shards"' -a locate -d 'show the shard and the node of a key'
complete -c sluicegate -n '__sluicegate_at "shards"' -a join -d 'add nodes, and move their share of shards to them'
complete -c sluicegate -n '__sluicegate_at "shards"' -a leave -d 'remove nodes, and move their shards to the others'
complete -c sluicegate -n '__sluicegate_at "shards"' -a weights -d 'show the weights of the shards'
complete -c sluicegate -n '__sluicegate_at "shards"' -a rebalance -d 'balance the shards again, by number or weight'
complete -c sluicegate -n '__sluicegate_at "shards"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards show" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards show"' -l weights -r -F -d 'weights of the shards: from their state, or a file'
complete -c sluicegate -n '__sluicegate_at "shards show"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards show"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards show"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards show"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards show"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards show"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards locate" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards locate"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards locate"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards locate"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards locate"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards locate"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards locate"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards join" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards join"' -l capacity -r -f -d 'relative capacity of each of these nodes [default: 1; x>=1]'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l idempotent -d 'succeed if there is nothing to do'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l max-moves -r -f -d 'move no more shards than this [x>=0]'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l output -r -F -d 'write a new file; leave the target unchanged'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards join"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "shards join"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards join"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards join"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards leave" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l idempotent -d 'succeed if there is nothing to do'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l max-moves -r -f -d 'move no more shards than this [x>=0]'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l output -r -F -d 'write a new file; leave the target unchanged'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l force -d 'even if no node is left'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards leave"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards weights" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l weights -r -F -d 'weights of the shards: from their state, or a file'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l limit -r -f -d 'heaviest shards to show [default: 50; x>=1]'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards weights"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "shards rebalance" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l weights -r -F -d 'weights of the shards: from their state, or a file'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l max-moves -r -f -d 'move no more shards than this [x>=0]'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l max-imbalance -r -f -d 'how far above its share a node may be'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l capacity -r -f -d 'new capacity of a node'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l from-file -r -F -d 'install the assignment in this file as is'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l output -r -F -d 'write a new file; leave the target unchanged'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "shards rebalance"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "audit" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "audit"' -l sink -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory of its file sink; as configured by default'
complete -c sluicegate -n '__sluicegate_at "audit"' -l since -r -f -d 'batches or epochs since, as ISO 8601'
complete -c sluicegate -n '__sluicegate_at "audit"' -l read-data -d 'gated streams only: read every byte of the output'
complete -c sluicegate -n '__sluicegate_at "audit"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "audit"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "audit"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "audit"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "audit"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "audit"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "submit" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "submit"' -l app -r -F -d 'application: job.py or job.jar'
complete -c sluicegate -n '__sluicegate_at "submit"' -l checkpoint -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'its checkpoint, verified before the start'
complete -c sluicegate -n '__sluicegate_at "submit"' -l offsets-store -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'offset store that holds its positions'
complete -c sluicegate -n '__sluicegate_at "submit"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "submit"' -l allow-new-consumer -d 'allow a consumer without positions'
complete -c sluicegate -n '__sluicegate_at "submit"' -l master -r -f -d 'as in spark-submit'
complete -c sluicegate -n '__sluicegate_at "submit"' -l class -r -f -d 'as in spark-submit'
complete -c sluicegate -n '__sluicegate_at "submit"' -l conf -r -f -d 'Spark setting; secrets are hidden from ps'
complete -c sluicegate -n '__sluicegate_at "submit"' -l py-files -r -f -d 'as in spark-submit'
complete -c sluicegate -n '__sluicegate_at "submit"' -l jars -r -f -d 'as in spark-submit'
complete -c sluicegate -n '__sluicegate_at "submit"' -l packages -r -f -d 'as in spark-submit'
complete -c sluicegate -n '__sluicegate_at "submit"' -l spark-submit -r -F -d 'spark-submit; default: from $SPARK_HOME, then pip'
complete -c sluicegate -n '__sluicegate_at "submit"' -l available-now -d 'gated streams only: end when caught up'
complete -c sluicegate -n '__sluicegate_at "submit"' -l interval -r -f -d 'gated streams only: time between epochs, such as 10s'
complete -c sluicegate -n '__sluicegate_at "submit"' -l force -d 'gated streams only: take over from a running job'
complete -c sluicegate -n '__sluicegate_at "submit"' -l skip-verify -d 'start even if the checkpoint or chain is damaged'
complete -c sluicegate -n '__sluicegate_at "submit"' -l writer-gone -d 'confirm that the job that wrote last has ended'
complete -c sluicegate -n '__sluicegate_at "submit"' -l log-dir -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'directory for the log of the job [default: .]'
complete -c sluicegate -n '__sluicegate_at "submit"' -s n -l dry-run -d 'only show what would be run'
complete -c sluicegate -n '__sluicegate_at "submit"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "submit"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "submit"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "submit"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "submit"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "maintain" 0' -F
complete -c sluicegate -n '__sluicegate_at "maintain"' -l all -d 'every known target'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l metrics-file -r -F -d 'write metrics to this file, for Prometheus'
complete -c sluicegate -n '__sluicegate_at "maintain"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "maintain"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "maintain"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "maintain"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "history" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "history"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "history"' -l limit -r -f -d 'newest entries to show [default: 50; x>=1]'
complete -c sluicegate -n '__sluicegate_at "history"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "history"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "history"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "history"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "history"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "history"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "undo" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "undo"' -l op -r -f -d 'id of the operation; default: the newest change'
complete -c sluicegate -n '__sluicegate_at "undo"' -l consumer -r -f -d 'consumer of the store; optional if there is only one'
complete -c sluicegate -n '__sluicegate_at "undo"' -l force -d 'take over from a running writer'
complete -c sluicegate -n '__sluicegate_at "undo"' -l writer-gone -d 'confirm that the job has stopped although files changed recently'
complete -c sluicegate -n '__sluicegate_at "undo"' -l as -r -f -a 'spark-checkpoint offset-store stream v1-checkpoint assignment-file' -d 'kind of the target; detected by default'
complete -c sluicegate -n '__sluicegate_at "undo"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "undo"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "undo"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "undo"' -l plan-out -r -F -d 'save the plan to a new file instead of applying it'
complete -c sluicegate -n '__sluicegate_at "undo"' -l expires -r -f -d 'how long the saved plan is valid; default 24h'
complete -c sluicegate -n '__sluicegate_at "undo"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "undo"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "undo"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "undo"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "undo"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "apply" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "apply"' -l expect -r -f -d 'refuse any other plan than this one'
complete -c sluicegate -n '__sluicegate_at "apply"' -l writer-gone -d 'confirm that the job has stopped although files changed recently'
complete -c sluicegate -n '__sluicegate_at "apply"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "apply"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "apply"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "apply"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "apply"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "apply"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "apply"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "apply"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "locks"' -a list -d 'list the locks of the home and their holders'
complete -c sluicegate -n '__sluicegate_at "locks"' -a break -d 'clear the lock of a dead holder, or fence off a job'
complete -c sluicegate -n '__sluicegate_at "locks"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "locks"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "locks"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "locks"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "locks"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "locks list" 0 0' -F
complete -c sluicegate -n '__sluicegate_at "locks list"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "locks list"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "locks list"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "locks break"' -s n -l dry-run -d 'only show what would be done'
complete -c sluicegate -n '__sluicegate_at "locks break"' -s y -l yes -d 'do not ask'
complete -c sluicegate -n '__sluicegate_at "locks break"' -l reason -r -f -d 'why, for the audit record'
complete -c sluicegate -n '__sluicegate_at "locks break"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "locks break"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "locks break"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "locks break"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "locks break"' -s h -l help -d 'show this help'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l home -r -f -a '(__fish_complete_directories (commandline -ct))' -d 'home that holds the gated streams [env: SG_HOME]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l config -r -F -d 'configuration to use [env: SG_CONFIG]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l json -d 'print one JSON document'
complete -c sluicegate -n '__sluicegate_at "doctor"' -l no-color -d 'print without colour [env: NO_COLOR]'
complete -c sluicegate -n '__sluicegate_at "doctor"' -s h -l help -d 'show this help'
complete -c sg -w sluicegate
