package contender

import (
	"encoding/json"
	"net/http"
	"strconv"
	"sync"
	"time"

	v1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const leasesPath = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"

// Leases is the part of a Kubernetes API server that leader election needs: the Leases of
// coordination.k8s.io/v1, kept in memory, with the optimistic concurrency of etcd (an update of an
// older resourceVersion is a conflict).
type Leases struct {
	mux  *http.ServeMux
	gate sync.RWMutex // held for writing while frozen

	mu       sync.Mutex
	version  int
	leases   map[string]*v1.Lease
	written  time.Time      // when the store last took a lease
	requests map[string]int // by User-Agent
}

// NewLeases returns an empty store.
func NewLeases() *Leases {
	l := &Leases{mux: http.NewServeMux(), leases: make(map[string]*v1.Lease), requests: make(map[string]int)}
	l.mux.HandleFunc("GET "+leasesPath, func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, &v1.LeaseList{TypeMeta: metav1.TypeMeta{Kind: "LeaseList", APIVersion: "coordination.k8s.io/v1"}})
	})
	l.mux.HandleFunc("GET "+leasesPath+"/{name}", l.get)
	l.mux.HandleFunc("POST "+leasesPath, l.create)
	l.mux.HandleFunc("PUT "+leasesPath+"/{name}", l.update)
	return l
}

// ServeHTTP implements [http.Handler].
func (l *Leases) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	l.gate.RLock()
	defer l.gate.RUnlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.requests[r.UserAgent()]++
	l.mux.ServeHTTP(w, r)
}

// Freeze lets every request wait until thaw is called.
func (l *Leases) Freeze() (thaw func()) {
	l.gate.Lock()
	return sync.OnceFunc(l.gate.Unlock)
}

// Requests returns how many requests a candidate has made.
func (l *Leases) Requests(id string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.requests[id]
}

// Expiry returns when the lease of [Key] ends unless it is renewed: its duration after the store
// took it. Zero: nobody holds it.
func (l *Leases) Expiry() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	lease := l.leases[Key]
	if lease == nil || lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || lease.Spec.LeaseDurationSeconds == nil {
		return time.Time{}
	}
	return l.written.Add(time.Duration(*lease.Spec.LeaseDurationSeconds) * time.Second)
}

func (l *Leases) get(w http.ResponseWriter, r *http.Request) {
	lease := l.leases[r.PathValue("name")]
	if lease == nil {
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
		return
	}
	answer(w, http.StatusOK, lease)
}

func (l *Leases) create(w http.ResponseWriter, r *http.Request) {
	lease := new(v1.Lease)
	switch {
	case json.NewDecoder(r.Body).Decode(lease) != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case l.leases[lease.Name] != nil:
		refuse(w, http.StatusConflict, metav1.StatusReasonAlreadyExists)
	default:
		l.store(lease)
		answer(w, http.StatusCreated, lease)
	}
}

func (l *Leases) update(w http.ResponseWriter, r *http.Request) {
	lease := new(v1.Lease)
	old := l.leases[r.PathValue("name")]
	switch {
	case json.NewDecoder(r.Body).Decode(lease) != nil:
		refuse(w, http.StatusBadRequest, metav1.StatusReasonBadRequest)
	case old == nil:
		refuse(w, http.StatusNotFound, metav1.StatusReasonNotFound)
	case lease.ResourceVersion != "" && lease.ResourceVersion != old.ResourceVersion:
		refuse(w, http.StatusConflict, metav1.StatusReasonConflict)
	default:
		l.store(lease)
		answer(w, http.StatusOK, lease)
	}
}

func (l *Leases) store(lease *v1.Lease) {
	l.version++
	lease.ResourceVersion = strconv.Itoa(l.version)
	lease.TypeMeta = metav1.TypeMeta{Kind: "Lease", APIVersion: "coordination.k8s.io/v1"}
	l.leases[lease.Name] = lease
	l.written = time.Now()
}

func refuse(w http.ResponseWriter, code int32, reason metav1.StatusReason) {
	answer(w, int(code), &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: code, Reason: reason, Message: string(reason),
	})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) //nolint:errchkjson // a client that is gone needs no answer
}
