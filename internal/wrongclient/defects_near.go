package wrongclient

// Defects that take what is nearly right for right.
const (
	ownerHalved     defect = "owner-halved"
	keyCaseless     defect = "key-caseless"
	keyPrefix       defect = "key-prefix"
	refusalByKey    defect = "refusal-by-key"
	answerByKey     defect = "answer-by-key"
	answerByToken   defect = "answer-by-token"
	tokenClamped    defect = "token-clamped"
	tokenText       defect = "token-text"
	noticeAnywhere  defect = "notice-anywhere"
	cancelAsUnsent  defect = "cancel-as-unsent"
	releaseInverted defect = "release-inverted"
)

var nearDefects = []Defect{
	{string(ownerHalved), "match-triple", "compares the lower 32 bits of an owner", []string{dialectCurrent}},
	{string(keyCaseless), "match-triple", "takes keys that differ in their case for one", []string{dialectCurrent}},
	{string(keyPrefix), "match-triple", "takes a key that begins with the call's for the call's", []string{dialectCurrent}},
	{string(refusalByKey), "match-triple", "gives T and B to any acquire of the key, whatever its owner", []string{dialectCurrent}},
	{string(answerByKey), "match-triple", "gives the answer to a release to any release of the key, whatever its token", []string{dialectCurrent}},
	{string(answerByToken), "match-triple", "gives the answer to a release to any release of the token, whatever its key", []string{dialectCurrent}},
	{string(tokenClamped), "exact-token", "keeps a token in a signed number of 64 bits, cut to the highest one", []string{dialectCurrent, dialectV0}},
	{string(tokenText), "exact-token", "reads a token as UTF-8, in which the bytes that are none become one letter", []string{dialectCurrent, dialectV0}},
	{string(noticeAnywhere), "moved-allowlist", "takes any address in an L for the leader's, and dials it first", []string{dialectCurrent}},
	{string(cancelAsUnsent), "indeterminate-stays", "tells a call that was cancelled after it was sent as unsent", []string{dialectCurrent}},
	{string(releaseInverted), "close-proves-nothing", "tells a release that was answered N as released", []string{dialectCurrent}},
}
