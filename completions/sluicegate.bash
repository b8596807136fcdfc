# Made by docs/generate; do not edit.

_sluicegate() {
    local given=${COMP_WORDS[COMP_CWORD]} words=() word glue='' current lead=''
    local path='' position=0 slot='' literal='' group options kind choices
    COMPREPLY=()
    # Bash breaks words at = and :, the command does not.
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        if [[ ${#words[@]} -gt 0 && ($glue || $word == [=:]*) ]]; then
            words[${#words[@]}-1]+=$word
        else
            words+=("$word")
        fi
        [[ $word == *[=:] ]] && glue=1 || glue=''
    done
    [[ $given == [=:]* ]] && given=''
    current=${words[${#words[@]}-1]}

    for word in "${words[@]:0:${#words[@]}-1}"; do
        if [[ $slot ]]; then
            slot=''
        elif [[ $word == -- && ! $literal ]]; then
            literal=1
        elif [[ $word == -?* && ! $literal ]]; then
            _sluicegate_at "$path" "$word"
            slot=${kind:+$word}
        else
            _sluicegate_at "$path" 0
            if [[ $group ]]; then
                path="${path:+$path }$word" position=0 literal=''
            else
                position=$((position + 1))
            fi
        fi
    done

    if [[ $slot ]]; then
        _sluicegate_at "$path" "$slot"
    elif [[ $current == --*=* && ! $literal ]]; then
        lead=${current%%=*}=
        _sluicegate_at "$path" "${current%%=*}"
    else
        _sluicegate_at "$path" "$position"
        if [[ ! $literal && ($current == -* || ! $kind) ]]; then
            kind=words choices=("${options[@]}")
        fi
    fi
    case $kind in
    files) compopt -o default 2>/dev/null ;;
    directories) compopt -o dirnames 2>/dev/null ;;
    words)
        for word in "${choices[@]}"; do
            word=$lead$word
            [[ $word == "$current"* ]] && COMPREPLY+=("${word#"${current%"$given"}"}")
        done
        ;;
    esac
}

_sluicegate_at() {
    group='' options=() kind='' choices=()
    case $1 in
    '')
        group=1 options=(--home --config --json --no-color --version -h --help)
        case $2 in
        0) kind=words choices=(init demo status explain checkpoint offsets dedup state shards audit submit maintain history undo apply locks doctor) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    init)
        options=(--store --stream --offsets --from -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        --store) kind=directories ;;
        --stream) kind=text ;;
        --offsets) kind=files ;;
        --from) kind=words choices=(earliest latest) ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    demo)
        options=(--kills --events --home --config --json --no-color -h --help)
        case $2 in
        --kills) kind=text ;;
        --events) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    status)
        options=(-w --watch --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    explain)
        options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    checkpoint)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(inspect list verify diff repair rollback prune import export seed relocate) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint inspect')
        options=(--snapshot --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --snapshot) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint list')
        options=(--last --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --last) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint verify')
        options=(--sink --read-data --read-data-subset --max-duration --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --sink) kind=directories ;;
        --read-data-subset) kind=text ;;
        --max-duration) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint diff')
        options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        1) kind=files ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint repair')
        options=(--sink --read-data --offsets --query-id --withdraw --adopt --force --writer-gone --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --sink) kind=directories ;;
        --offsets) kind=files ;;
        --query-id) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint rollback')
        options=(--to --to-datetime --force --sink --into --writer-gone --unchecked --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --to) kind=text ;;
        --to-datetime) kind=text ;;
        --sink) kind=directories ;;
        --into) kind=directories ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint prune')
        options=(--keep --keep-within --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --keep) kind=text ;;
        --keep-within) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint import')
        options=(--force -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        1) kind=text ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint export')
        options=(--snapshot --as -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=text ;;
        1) kind=files ;;
        --snapshot) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint seed')
        options=(--offsets --format --source-offset -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=directories ;;
        --offsets) kind=files ;;
        --format) kind=words choices=(spark csv rpk) ;;
        --source-offset) kind=text ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'checkpoint relocate')
        options=(--map --as -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        1) kind=directories ;;
        --map) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    offsets)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(show reset lag export import delete) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets show')
        options=(--batch --consumer --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --batch) kind=text ;;
        --consumer) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets reset')
        options=(--consumer --topic --all-topics --to-earliest --to-latest --to-current --to-offset --shift-by --to-datetime --by-duration --from-file --clamp --skip-seen --reprocess --force --unchecked --sink --into --writer-gone --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --consumer) kind=text ;;
        --topic) kind=text ;;
        --to-offset) kind=text ;;
        --shift-by) kind=text ;;
        --to-datetime) kind=text ;;
        --by-duration) kind=text ;;
        --from-file) kind=files ;;
        --sink) kind=directories ;;
        --into) kind=directories ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets lag')
        options=(--end-offsets --consumer --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --end-offsets) kind=files ;;
        --consumer) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets export')
        options=(--format --batch --consumer --into --as -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --format) kind=words choices=(spark csv rpk) ;;
        --batch) kind=text ;;
        --consumer) kind=text ;;
        --into) kind=directories ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets import')
        options=(--consumer --format --replace --force --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=text ;;
        1) kind=directories ;;
        --consumer) kind=text ;;
        --format) kind=words choices=(spark csv rpk) ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'offsets delete')
        options=(--consumer --topic --all-topics --force --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --consumer) kind=text ;;
        --topic) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    dedup)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(stats check compact) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'dedup stats')
        options=(--as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'dedup check')
        options=(--as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=text ;;
        [0-9]*) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'dedup compact')
        options=(--retain --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --retain) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    state)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(show query compact) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'state show')
        options=(--snapshot --shard --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --snapshot) kind=text ;;
        --shard) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'state query')
        options=(--snapshot --shard --limit --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=text ;;
        [0-9]*) kind=text ;;
        --snapshot) kind=text ;;
        --shard) kind=text ;;
        --limit) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'state compact')
        options=(--as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    shards)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(show locate join leave weights rebalance) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards show')
        options=(--weights --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --weights) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards locate')
        options=(--as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        [0-9]*) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards join')
        options=(--capacity --idempotent --max-moves --output --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        [0-9]*) kind=text ;;
        --capacity) kind=text ;;
        --max-moves) kind=text ;;
        --output) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards leave')
        options=(--idempotent --max-moves --output --force --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        [0-9]*) kind=text ;;
        --max-moves) kind=text ;;
        --output) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards weights')
        options=(--weights --limit --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --weights) kind=files ;;
        --limit) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'shards rebalance')
        options=(--weights --max-moves --max-imbalance --capacity --from-file --output --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --weights) kind=files ;;
        --max-moves) kind=text ;;
        --max-imbalance) kind=text ;;
        --capacity) kind=text ;;
        --from-file) kind=files ;;
        --output) kind=files ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    audit)
        options=(--sink --since --read-data --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --sink) kind=directories ;;
        --since) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    submit)
        options=(--app --checkpoint --offsets-store --consumer --allow-new-consumer --master --class --conf --py-files --jars --packages --spark-submit --available-now --interval --force --skip-verify --writer-gone --log-dir -n --dry-run --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        [0-9]*) kind=text ;;
        --app) kind=files ;;
        --checkpoint) kind=directories ;;
        --offsets-store) kind=directories ;;
        --consumer) kind=text ;;
        --master) kind=text ;;
        --class) kind=text ;;
        --conf) kind=text ;;
        --py-files) kind=text ;;
        --jars) kind=text ;;
        --packages) kind=text ;;
        --spark-submit) kind=files ;;
        --interval) kind=text ;;
        --log-dir) kind=directories ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    maintain)
        options=(--all --metrics-file -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        [0-9]*) kind=files ;;
        --metrics-file) kind=files ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    history)
        options=(--consumer --limit --as --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --consumer) kind=text ;;
        --limit) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    undo)
        options=(--op --consumer --force --writer-gone --as -n --dry-run -y --yes --reason --plan-out --expires --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --op) kind=text ;;
        --consumer) kind=text ;;
        --as) kind=words choices=(spark-checkpoint offset-store stream v1-checkpoint assignment-file) ;;
        --reason) kind=text ;;
        --plan-out) kind=files ;;
        --expires) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    apply)
        options=(--expect --writer-gone -n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --expect) kind=text ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    locks)
        group=1 options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=words choices=(list break) ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'locks list')
        options=(--home --config --json --no-color -h --help)
        case $2 in
        0) kind=files ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    'locks break')
        options=(-n --dry-run -y --yes --reason --home --config --json --no-color -h --help)
        case $2 in
        0) kind=text ;;
        --reason) kind=text ;;
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    doctor)
        options=(--home --config --json --no-color -h --help)
        case $2 in
        --home) kind=directories ;;
        --config) kind=files ;;
        esac
        ;;
    esac
}

complete -F _sluicegate sluicegate sg
