//! The files of `--out`: the choice for vLLM, for llm-d, and for another simulation of it.

use blis_config::policy::Bundle;
use blis_config::policy::llm_d::EndpointPicker;
use blis_config::{Deployment, short_name};
use blis_diag::YamlPage;
use blis_plugin::Kind;

use crate::experiment::Experiment;
use crate::explain::explain;

use super::config::AdviseConfig;
use super::document::{AdvisedDeployment, DeploymentAdvice};
use super::space::{Design, ReplicaLayout};

/// A file of the choice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AdviceFile {
    pub name: &'static str,
    pub text: String,
}

/// The files of the choice of `advice`, which is that of `config`; only a README if nothing holds.
#[must_use]
pub fn files(config: &AdviseConfig, advice: &DeploymentAdvice) -> Vec<AdviceFile> {
    let choice = advice.choice().and_then(|choice| {
        let design = config.space.designs.iter().find(|design| design.settings == choice.settings)?;
        Some(Chosen::new(choice, design, advice.requests_per_run))
    });
    let file = |name, text| AdviceFile { name, text };
    let Some(chosen) = choice else {
        return vec![file("README.md", format!("# No deployment\n\n{}\n", advice.sentence))];
    };
    let picker = chosen.picker();
    let mut files = vec![
        file("README.md", chosen.readme(advice, picker.is_some())),
        file("blis.yaml", explain(&chosen.service, &chosen.design.deployment).to_string()),
        file("vllm.sh", chosen.vllm()),
        file("llm-d-values.yaml", chosen.llm_d_values()),
    ];
    files.extend(picker.map(|text| file("llm-d-epp.yaml", text)));
    files
}

/// The choice with its number of replicas.
struct Chosen<'a> {
    choice: &'a AdvisedDeployment,
    design: &'a Design,
    service: Experiment,
}

impl<'a> Chosen<'a> {
    fn new(choice: &'a AdvisedDeployment, design: &'a Design, requests: Option<u64>) -> Self {
        let layout = ReplicaLayout { replicas: choice.replicas, prefill: choice.prefill_replicas };
        // The settings say how many, so that the configuration does.
        let mut spec = design.spec.clone();
        if spec.concurrency.is_some() {
            spec.num_requests = requests.and_then(|requests| u32::try_from(requests).ok()).or(spec.num_requests);
        }
        let count = |count: u32| std::num::NonZeroU32::new(count).map(std::num::NonZeroU32::get);
        if design.fixed_roles.is_none() && design.has_roles {
            spec.prefill_instances = count(layout.prefill);
            spec.decode_instances = count(layout.replicas - layout.prefill);
        } else if design.fixed_roles.is_none() {
            spec.num_instances = count(layout.replicas);
        }
        let service = Experiment::new(spec, crate::experiment::OutputFiles::default());
        Self { choice, design, service: service.unwrap_or_else(|_| design.with(layout)) }
    }

    fn deployment(&self) -> &Deployment {
        &self.design.deployment
    }

    fn vllm(&self) -> String {
        let (replicas, prefill) = (self.choice.replicas, self.choice.prefill_replicas);
        let roles = match prefill {
            0 => format!("{replicas} replicas of {} GPUs each", self.design.gpus),
            prefill => format!(
                "{prefill} replicas for prefill and {} for decode, {} GPUs each",
                replicas - prefill,
                self.design.gpus
            ),
        };
        format!(
            "#!/bin/sh\n# {}\n# {roles}: run this on the GPUs of each.\nset -eu\nexec {}\n",
            self.choice.deployment,
            self.design.launch()
        )
    }

    /// Values of the Helm chart llm-d-modelservice.
    fn llm_d_values(&self) -> String {
        let model = &self.service.deployment.model;
        let name = kubernetes_name(&short_name(model));
        let command = self.design.launch();
        let args: Vec<&str> = command.split_whitespace().skip(3).collect();
        let roles = self.choice.prefill_replicas;
        let mut text = format!(
            "# Values of the Helm chart llm-d-modelservice: {}\n# Set the image, and the name of the secret with the token of the model.\n\
             fullnameOverride: {name}\nmultinode: false\nmodelArtifacts:\n  uri: \"hf://{model}\"\n  name: \"{model}\"\n  authSecretName: llm-d-hf-token\n\
             accelerator:\n  type: nvidia\nrouting:\n  servicePort: 8000\n",
            self.choice.deployment
        );
        text.push_str(&self.role("decode", self.choice.replicas - roles, &args));
        text.push_str(&if roles > 0 {
            self.role("prefill", roles, &args)
        } else {
            "prefill:\n  create: false\n".to_owned()
        });
        text
    }

    /// The section of a role.
    fn role(&self, role: &str, replicas: u32, args: &[&str]) -> String {
        let deployment = self.deployment();
        let has_setting = |arg: &&&str| !arg.starts_with("--tensor-parallel-size");
        let mut lines = format!(
            "{role}:\n  create: true\n  replicas: {replicas}\n  parallelism:\n    tensor: {}\n    data: {}\n  containers:\n  - name: vllm\n    \
             modelCommand: vllmServe\n    args:\n",
            deployment.tensor_parallel_size, deployment.data_parallel_size
        );
        let mut skips = false;
        for arg in args {
            if skips {
                skips = false;
                continue;
            }
            if !has_setting(&arg) {
                skips = true;
                continue;
            }
            lines.push_str(&format!("    - {}\n", yaml_text(arg.trim_matches('\''))));
        }
        lines.push_str(&format!(
            "    mountModelVolume: true\n    resources:\n      limits:\n        nvidia.com/gpu: \"{}\"\n",
            self.design.gpus
        ));
        lines
    }

    /// The configuration of llm-d's endpoint picker, if the router has a counterpart there.
    fn picker(&self) -> Option<String> {
        picker(&self.service).map(|picker| picker.to_config())
    }

    fn readme(&self, advice: &DeploymentAdvice, has_picker: bool) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.choice.deployment, advice.sentence);
        let slos: Vec<String> = advice.slo.iter().map(ToString::to_string).collect();
        text.push_str(&format!(
            "For {} {} within {}: simulated, not measured.\n\n| file | |\n|---|---|\n",
            crate::planning::text::load(advice.unit, advice.load),
            advice.unit.name(),
            slos.join(", ")
        ));
        text.push_str("| `vllm.sh` | the command of each replica |\n");
        text.push_str("| `llm-d-values.yaml` | values of the chart llm-d-modelservice |\n");
        let router = self.service.cluster.policies.name(Kind::Routing);
        if has_picker {
            text.push_str(&format!("| `llm-d-epp.yaml` | llm-d's endpoint picker, for the router `{router}` |\n"));
        }
        text.push_str("| `blis.yaml` | the simulation: `blis run --config blis.yaml` |\n\n## Caveats\n\n");
        if !has_picker {
            text.push_str(&format!("* The router `{router}` has no counterpart in llm-d's endpoint picker.\n"));
        }
        if has_picker && picker_reads_caches(&self.service) {
            text.push_str("* `llm-d-epp.yaml`: set `modelName` and `url` of `token-producer`, if it has one, to the model and a server.\n");
        }
        if let Some(risk) = self.choice.model_risk {
            text.push_str(&format!(
                "* The latency model errs: it holds in {} of {} equally likely errors that were measured on other deployments.",
                risk.held, risk.draws
            ));
            text.push_str(&match risk.replicas_within_risk {
                Some(count) if count > self.choice.replicas => {
                    format!(" {count} replicas hold in all but {:.0} % of them.\n", 100.0 * advice.risk)
                }
                _ => "\n".to_owned(),
            });
        }
        advice.notes.iter().for_each(|note| text.push_str(&format!("* {note}\n")));
        text.push_str("* Measure a replica before you buy: `blis observe`, `blis calibrate`.\n\n## What would change the choice\n\n");
        advice.changes.iter().for_each(|change| text.push_str(&format!("* {change}\n")));
        text
    }
}

/// llm-d's endpoint picker with the policies of `service`, if they have a counterpart there.
fn picker(service: &Experiment) -> Option<EndpointPicker> {
    let mut page = YamlPage::without_sources();
    service.cluster.policies.explain(&mut page);
    let bundle = Bundle::parse("policies", &page.to_string()).ok()?;
    EndpointPicker::of_bundle(&bundle).ok()
}

fn picker_reads_caches(service: &Experiment) -> bool {
    picker(service).is_some_and(|picker| picker.reads_prefix_caches())
}

/// Lower-case letters, digits and `-`.
fn kubernetes_name(text: &str) -> String {
    let name: String =
        text.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' }).collect();
    name.trim_matches('-').to_owned()
}

/// A text that YAML reads as one.
fn yaml_text(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_texts_are_those_of_kubernetes() {
        assert_eq!(kubernetes_name("Llama-3.1_8B"), "llama-3-1-8b");
        assert_eq!(yaml_text("{\"a\":\\}"), "\"{\\\"a\\\":\\\\}\"");
    }
}
