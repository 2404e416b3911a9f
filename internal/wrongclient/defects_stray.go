package wrongclient

// Defects and oddities about answers that nobody waits for, and frames that cannot be read.
const (
	strayIgnored      defect = "stray-ignored"
	releaseDeadLane   defect = "release-dead-lane"
	unknownSkipped    defect = "unknown-skipped"
	malformedSkipped  defect = "malformed-skipped"
	errorSkipped      defect = "error-skipped"
	overlongSkipped   defect = "overlong-skipped"
	keyBlind          defect = "key-blind"
	duplicateReleased defect = "duplicate-released"

	oddSlowReader   defect = "odd-slow-reader"   // acts on what it reads 100 ms later, and sends meanwhile
	oddReleasesTorn defect = "odd-releases-torn" // releases the token of a grant whose newline never came
)

var strayDefects = []Defect{
	{string(strayIgnored), "unmatched-closes", "drops an answer that nobody waits for, and goes on", []string{dialectCurrent}},
	{string(releaseDeadLane), "unmatched-released", "would release a grant that nobody waits for only on the session that it closes", []string{dialectCurrent}},
	{string(duplicateReleased), "unmatched-released", "releases the token of a grant that is delivered once more, while its call has the lock", []string{dialectCurrent}},
	{string(unknownSkipped), "unknown-fatal", "skips a frame with an unknown op", []string{dialectCurrent, dialectV0}},
	{string(malformedSkipped), "unknown-fatal", "skips a frame whose text breaks the limits", []string{dialectCurrent, dialectV0}},
	{string(errorSkipped), "unknown-fatal", "skips an error that is none of those it backs off by", []string{dialectCurrent, dialectV0}},
	{string(overlongSkipped), "framing-closes", "skips a frame over the limit of its text, up to the next newline", []string{dialectCurrent}},
	{string(keyBlind), "match-triple", "gives the answer to an acquire to the one with that owner, whatever its key", []string{dialectCurrent}},
}

var strayOdd = []defect{oddSlowReader, oddReleasesTorn}
