package wrongclient

// Defects and oddities about pauses: of the client, and between its connections.
const (
	reconnectHot defect = "reconnect-hot"
)

var paceDefects = []Defect{
	{string(reconnectHot), "error-backs-off", "makes the next connection at once, however the one before ended", []string{dialectCurrent, dialectV0}},
}

var paceOdd = []defect{}
