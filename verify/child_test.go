package verify

const childWord = "broken-adapter"

func childMain(how string, args []string) int { return 0 }
