// A receiver of notifications: checks the signature, tells repeats by job_id, answers first and
// works afterwards. Go 1.21 or later, no module: CALLBACK_SECRET=... go run receiver.go
// It listens on http://localhost:8095: docs/webhooks.md, "Callbacks to your own machine".
package main

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	toleranceS   = 300
	bodyBytesMax = 1 << 20
)

type event struct {
	Type  string `json:"type"`
	JobID string `json:"job_id"`
}

type receiver struct {
	key []byte
	mu  sync.Mutex
	// In your service: a table with job_id as its primary key.
	done map[string]bool
}

// whsec_ and Base64 stand for bytes, any other text for itself.
func keyOf(secret string) ([]byte, error) {
	encoded, prefixed := strings.CutPrefix(secret, "whsec_")
	if !prefixed {
		return []byte(secret), nil
	}
	return base64.RawStdEncoding.DecodeString(strings.TrimRight(encoded, "="))
}

func (r *receiver) holds(header http.Header, body []byte) bool {
	id, timestamp := header.Get("webhook-id"), header.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(timestamp, 10, 64)
	if err != nil {
		return false
	}
	if off := time.Now().Unix() - seconds; off > toleranceS || off < -toleranceS {
		return false
	}
	mac := hmac.New(sha256.New, r.key)
	mac.Write([]byte(id + "." + timestamp + "."))
	mac.Write(body)
	expected := "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	for _, one := range strings.Split(header.Get("webhook-signature"), " ") {
		if hmac.Equal([]byte(one), []byte(expected)) {
			return true
		}
	}
	return false
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	// The bytes as they came: JSON that was read and written again is not what was signed.
	body, err := io.ReadAll(http.MaxBytesReader(w, request.Body, bodyBytesMax))
	if err != nil || !r.holds(request.Header, body) {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	var e event
	if err := json.Unmarshal(body, &e); err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	repeat := r.done[e.JobID]
	r.done[e.JobID] = true
	r.mu.Unlock()
	w.WriteHeader(http.StatusNoContent)
	note := ""
	if repeat {
		note = "(a repeat)"
	}
	fmt.Println(e.Type, e.JobID, note)
}

func main() {
	key, err := keyOf(os.Getenv("CALLBACK_SECRET"))
	if err != nil || len(key) < 24 {
		log.Fatal("set CALLBACK_SECRET to the callback_secret you submit with")
	}
	port := os.Getenv("PORT")
	if port == "" {
		port = "8095"
	}
	listener, err := net.Listen("tcp", "127.0.0.1:"+port)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println("listening on", listener.Addr())
	log.Fatal(http.Serve(listener, &receiver{key: key, done: map[string]bool{}}))
}
