//! The limits of all servers, in one table.

use std::time::Duration;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

/// What clients may take of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections that are served at once.
    pub connections: usize,
    /// Connections of one address among them.
    pub per_peer: usize,
    /// Connections beyond these that are accepted briefly: probes are answered, other requests get 503.
    pub refusals: usize,
    /// Targets that are probes.
    pub probes: &'static [&'static str],
    /// How long a TLS handshake may take.
    pub handshake: Duration,
    /// Bytes of the head of a request.
    pub header_bytes: usize,
    /// Headers of a request.
    pub headers: usize,
    /// How long the head of a request may take, from its first byte; and the first byte of the first request.
    pub header_time: Duration,
    /// Bytes of the body of a request.
    pub body_bytes: usize,
    /// How long the body of a request may take.
    pub body_time: Duration,
    /// How long a request may take until the head of its answer is sent.
    pub answer_time: Duration,
    /// How long a connection may rest between two requests.
    pub idle: Duration,
    /// How long a client may read nothing of its response.
    pub stall: Duration,
    /// How long requests may continue after a shutdown was requested.
    pub grace: Duration,
}

const fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

impl Limits {
    /// The admission webhooks. An API server keeps one or two connections and gives up a review after 10 seconds; it
    /// closes connections that rest for 90 seconds, and is to be the one that hangs up.
    pub const WEBHOOK: Self = Self {
        connections: 64,
        per_peer: 16,
        refusals: 16,
        probes: &[],
        handshake: seconds(10),
        header_bytes: 16 * KIB,
        headers: 64,
        header_time: seconds(10),
        // Two objects of the largest size that an API server stores.
        body_bytes: 3 * MIB,
        body_time: seconds(5),
        answer_time: seconds(9),
        idle: seconds(120),
        stall: seconds(10),
        grace: seconds(0),
    };

    /// Metrics. Prometheus keeps a connection, and sends a request every 15 to 60 seconds.
    pub const METRICS: Self = Self {
        connections: 16,
        per_peer: 4,
        refusals: 8,
        body_bytes: 0,
        ..Self::WEBHOOK
    };

    /// `/healthz` and `/readyz`. A kubelet opens a connection per probe and waits a second for the answer.
    pub const HEALTH: Self = Self {
        connections: 32,
        per_peer: 8,
        refusals: 8,
        probes: &["/healthz", "/readyz"],
        idle: seconds(30),
        body_bytes: 0,
        ..Self::WEBHOOK
    };

    /// The repository. A node needs one or two connections; behind an address that is translated there may be many.
    pub const REPOSITORY: Self = Self {
        connections: 512,
        per_peer: 64,
        refusals: 64,
        probes: &[
            "/healthz",
            "/harvester-iso.manifest",
            "/harvester-iso/harvester-release.yaml",
        ],
        handshake: seconds(10),
        header_bytes: 16 * KIB,
        headers: 64,
        header_time: seconds(10),
        // None is read.
        body_bytes: 0,
        body_time: seconds(0),
        answer_time: seconds(30),
        idle: seconds(60),
        stall: seconds(30),
        // Kubernetes kills after 30 seconds.
        grace: seconds(25),
    };

    /// The API of a rehearsal. All clients come from loopback, and every watch of a client keeps a connection.
    pub const REHEARSAL: Self = Self {
        connections: 512,
        per_peer: 512,
        refusals: 32,
        probes: &["/healthz", "/livez", "/readyz"],
        handshake: seconds(10),
        header_bytes: 64 * KIB,
        headers: 100,
        header_time: seconds(10),
        body_bytes: 3 * MIB,
        body_time: seconds(30),
        answer_time: seconds(60),
        idle: seconds(120),
        stall: seconds(30),
        grace: seconds(25),
    };

    /// Whether a target belongs to probes, which are answered even at the limit.
    #[must_use]
    pub fn is_probe(&self, target: &str) -> bool {
        let path = target.split('?').next().unwrap_or_default();
        self.probes.contains(&path)
    }
}
