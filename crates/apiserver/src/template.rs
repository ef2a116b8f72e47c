//! A server as it was at one time, for others to begin with: to set a large one up takes a part of the time of its use.

use std::sync::Arc;

use crate::{
    kind::Registry,
    server::{ApiServer, Config},
    store::State,
};

/// All objects of a server, their history and the kinds that are served. Not its clients, faults, webhook handlers, tokens and
/// logs: whoever begins with a template adds his own. Cheap to clone.
#[derive(Clone)]
pub struct Template(Arc<Saved>);

struct Saved {
    state: State,
    registry: Registry,
}

impl std::fmt::Debug for Template {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Template")
            .field("version", &self.0.state.version)
            .finish_non_exhaustive()
    }
}

impl ApiServer {
    /// The server as it is now.
    #[must_use]
    pub fn template(&self) -> Template {
        let state = self.0.store.lock().copy();
        let registry = self.0.registry().clone();
        Template(Arc::new(Saved { state, registry }))
    }

    /// A server that begins with a template, as if everything in it had just been requested from this one. With the seed of
    /// the other one it continues as that would; observers see only what comes.
    #[must_use]
    pub fn from_template(config: Config, template: &Template) -> Self {
        let server = Self::new(config);
        server.0.store.begin_with(&template.0.state);
        server.0.serve_kinds(template.0.registry.clone());
        server
    }
}
