package testenv

import "errors"

// ClaimAddress returns a free address on loopback that stays the caller's until
// release, below the ephemeral range: a listener there may be closed and opened
// again.
func ClaimAddress() (addr string, release func(), err error) {
	claimed, err := claimPorts(1)
	if err != nil {
		return "", nil, err
	}
	return address(claimed.numbers[0]), claimed.release, nil
}

// Behind is for a proxy of the caller's own in front of a single broker: it must
// listen at listen and lead to upstream. Whoever comes through it is told of no
// other address. There is one at a time, StartProxy's included.
func (k *Kafka) Behind() (listen, upstream string, err error) {
	if k.server == nil {
		return "", "", errors.New("proxy to Kafka: brokers that were given do not advertise one")
	}
	listens, upstreams, _ := k.server.behind()
	if len(listens) != 1 {
		return "", "", errors.New("proxy to Kafka: Behind is for one broker")
	}
	return listens[0], upstreams[0], nil
}
