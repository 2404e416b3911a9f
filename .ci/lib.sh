# shellcheck shell=bash disable=SC2034
# Sourced by run and slow. Leaves: root (the working directory), work (a temporary directory), out and err (output of the last expect).
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
cd "$root"
export CI=true GOWORK=off
work=$(mktemp -d "${TMPDIR:-/tmp}/tornwire-ci.XXXXXX")
out=$work/out err=$work/err
tornwire=$work/tornwire
current=start

finish() {
	local status=$?
	trap - EXIT
	rm -rf "$work"
	if ((status != 0)); then
		printf '\nFAILED: %s (exit status %d after %d s)\n' "$current" "$status" "$SECONDS"
		if ((status == 143)); then echo "It was ended from outside or by the time limit."; fi
	fi
	exit "$status"
}
trap finish EXIT
trap 'exit 129' HUP
trap 'exit 130' INT
trap 'exit 143' TERM

# limit starts the script anew with a time limit over it and all its children.
limit() {
	if [[ -z ${TORNWIRE_CI_LIMITED:-} ]]; then
		rm -rf "$work"
		TORNWIRE_CI_LIMITED=1 exec timeout --kill-after=20s "$1" bash "${@:2}"
	fi
}

# steps runs each named step (the function step_NAME), with a heading and its duration. Never call it, or a step, in a
# condition: bash would ignore failing commands inside.
steps() {
	local began
	for current in "$@"; do
		if [[ $(type -t "step_$current") != function ]]; then
			echo "there is no step $current" >&2
			exit 64
		fi
	done
	for current in "$@"; do
		printf '\n=== %s\n' "$current"
		began=$SECONDS
		"step_$current"
		printf -- '--- %s: %d s\n' "$current" "$((SECONDS - began))"
	done
	printf '\nPASSED in %d s: %s\n' "$SECONDS" "$*"
}

# fail tells what is wrong and ends the run.
fail() {
	echo "$*"
	exit 1
}

# expect STATUS COMMAND... runs a command that must end with that status.
expect() {
	local want=$1 got=0
	shift
	echo "\$ $*"
	"$@" >"$out" 2>"$err" </dev/null || got=$?
	if ((got != want)); then
		tail -n 40 "$out"
		tail -n 40 "$err"
		fail "exit status $got, wanted $want: $*"
	fi
	tail -n 1 "$out"
}

step_binary() { go build -o "$tornwire" ./cmd/tornwire; }

# fuzz_all TIME runs every fuzz target for that long.
fuzz_all() {
	local dir dirs listed target
	dirs=$(find . \( -name node_modules -o -name '.?*' \) -prune -o -name '*_test.go' -exec grep -lE '^func Fuzz' {} + |
		xargs -r -n 1 dirname | sort -u) || true # grep fails if there is none
	[[ -n $dirs ]] || echo "there is no fuzz target"
	for dir in $dirs; do
		listed=$(go test -list '^Fuzz' "$dir")
		for target in $(grep '^Fuzz' <<<"$listed"); do
			fuzz "$dir" "$target" "$1"
		done
	done
}

fuzz() {
	local try log=$work/fuzz.log
	for try in 1 2; do
		echo "fuzz $1 $2, $3"
		if go test -run '^$' -fuzz "^$2\$" -fuzztime "$3" "$1" >"$log" 2>&1; then
			tail -n 2 "$log"
			return
		fi
		# The go command can take the end of its own time for a failure; there is no failing input then.
		if grep -q 'Failing input written' "$log" || ! grep -q 'context deadline exceeded' "$log"; then break; fi
	done
	cat "$log"
	fail "fuzz target $2 in $1 failed"
}
