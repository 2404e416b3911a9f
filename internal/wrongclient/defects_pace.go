package wrongclient

// Defects and oddities about pauses: of the client, and between its connections.
const (
	reconnectHot     defect = "reconnect-hot"
	entersAfterThaw  defect = "enters-after-thaw"
	forgetsAfterThaw defect = "forgets-after-thaw"
)

var paceDefects = []Defect{
	{string(entersAfterThaw), "late-gate", "looks once more when the deadline has passed, and enters on a grant that it finds then", []string{dialectCurrent}},
	{string(forgetsAfterThaw), "late-gate", "looks once more when the deadline has passed, and drops a grant that it finds then", []string{dialectCurrent}},
	{string(reconnectHot), "error-backs-off", "makes the next connection at once, however the one before ended", []string{dialectCurrent, dialectV0}},
}

var paceOdd = []defect{}
