package testenv

// Runner is what testing.M offers; goleak.VerifyTestMain takes it too.
type Runner interface{ Run() int }

// Main wraps m: after its tests the shared servers are stopped and their data
// removed.
func Main(m Runner) Runner { return mainWithServers{m} }

type mainWithServers struct{ tests Runner }

func (m mainWithServers) Run() int {
	defer CloseShared()
	return m.tests.Run()
}

// CloseShared stops the shared servers; no test may use them afterwards.
func CloseShared() {
	shared.Lock()
	defer shared.Unlock()
	for _, server := range shared.postgres {
		if server.value != nil {
			server.value.Close()
		}
	}
	if shared.kafka.value != nil {
		shared.kafka.value.Close()
	}
}
