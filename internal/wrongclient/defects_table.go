package wrongclient

// Defects about a server that answers at once.
const registerLate defect = "register-late"

var tableDefects = []Defect{
	{
		string(registerLate), "register-first", "registers an acquire a moment after it has written it",
		[]string{dialectCurrent, dialectV0},
	},
}
