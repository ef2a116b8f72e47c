//! A server as it was at one time, for others to begin with: to set a large one up takes a part of the time of its use.

use std::sync::Arc;

use crate::{
    kind::Registry,
    server::{ApiServer, Config},
    store::State,
};

/// All objects of a server, their history and the kinds that are served. Not its clients, faults, webhook handlers, tokens and
/// logs: a server that begins with a template has its own. Cheap to clone.
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

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use kube::{
        Api,
        api::{ObjectMeta, PostParams},
    };

    use super::*;

    fn config() -> Config {
        Config {
            seed: 7,
            ..Config::new(Arc::new(|| jiff::Timestamp::UNIX_EPOCH))
        }
    }

    async fn create(server: &ApiServer, name: &str) {
        let api: Api<ConfigMap> = Api::namespaced(server.client(), "default");
        let metadata = ObjectMeta {
            name: Some(name.to_owned()),
            ..ObjectMeta::default()
        };
        let object = ConfigMap {
            metadata,
            ..ConfigMap::default()
        };
        api.create(&PostParams::default(), &object).await.unwrap();
    }

    #[tokio::test]
    async fn what_begins_with_a_template_continues_as_the_first_and_leaves_it_alone() {
        let first = ApiServer::new(config());
        create(&first, "before").await;
        let template = first.template();
        create(&first, "after").await;
        let second = ApiServer::from_template(config(), &template);
        let names = |server: &ApiServer| server.store().list("", "configmaps", None).len();
        assert_eq!((names(&first), names(&second)), (2, 1));
        create(&second, "after").await;
        let of = |server: &ApiServer| server.store().list("", "configmaps", None);
        assert_eq!(of(&first), of(&second));
        assert_eq!(first.store().counters(), second.store().counters());
        assert_eq!(first.store().history().len(), second.store().history().len());
        create(&second, "more").await;
        assert_eq!((names(&first), names(&second)), (2, 3));
        assert_eq!(names(&ApiServer::from_template(config(), &template)), 1);
    }
}
