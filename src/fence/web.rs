//! HTTPS for agents that speak it: clients are built at the start, with their trust, so that a failover needs neither
//! disk nor the system's certificate store (rustls, ring).
