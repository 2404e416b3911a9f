package api

import (
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
)

// refuseBrowsers keeps pages of strangers from the routes that have no other
// guard. toxiproxy has the same rule, and the same words.
func refuseBrowsers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.UserAgent(), "Mozilla/") {
			write(w, newError(http.StatusForbidden, "User agent not allowed").reply())
			return
		}
		next.ServeHTTP(w, r)
	})
}

// refuseForeigners keeps pages of strangers out, and lets our own page in: Host has
// to be an address or localhost, because any other name could be made to point here
// after a page was loaded from it, and Origin, where there is one, has to be ours.
func refuseForeigners(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch origin := r.Header.Values("Origin"); {
		case !ownHost(r.Host):
			write(w, newError(http.StatusForbidden, "host %q is neither an address nor localhost", r.Host).reply())
		case len(origin) > 0 && (len(origin) > 1 || !ownOrigin(origin[0], r.Host)):
			write(w, newError(http.StatusForbidden, "origin %q is not this API's", strings.Join(origin, ", ")).reply())
		default:
			next.ServeHTTP(w, r)
		}
	})
}

func ownHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	if strings.EqualFold(name, "localhost") {
		return true
	}
	_, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(name, "["), "]"))
	return err == nil
}

func ownOrigin(origin, host string) bool {
	u, err := url.Parse(origin)
	return err == nil && u.Scheme == "http" && strings.EqualFold(u.Host, host)
}
