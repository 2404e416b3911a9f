package wrongclient

// Defects and oddities about pauses: of the client, and between its connections.
const ()

var paceDefects = []Defect{}

var paceOdd = []defect{}
