//! helm.cattle.io: what RKE2 installs by Helm.

use super::{api_version_of, foreign_kind, foreign_part, kind_of};

foreign_kind! {
    /// Changes to a chart that RKE2 brings.
    HelmChartConfig: "helm.cattle.io" / "v1" / "helmchartconfigs", NamespaceResourceScope, status: false, short: ["hcc"] {
        /// What is wanted.
        spec: HelmChartConfigSpec,
    }
}

foreign_part! {
    /// What is wanted of a chart that RKE2 brings.
    HelmChartConfigSpec {
        /// Values, as YAML.
        values_content: String,
        /// What happens when it fails: `reinstall` or `abort`.
        failure_policy: String,
    }
}
