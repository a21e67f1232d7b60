//! The HTTP requests.

use axum::body::Bytes;
use blis_eval::error::RunError;
use blis_sim::request::{Name, Request, session_text};
use blis_workload::Names;
use http_body_util::Full;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue};
use serde_json::{Map, Value, json};

use super::contexts::Turn;
use super::prompts::{PromptText, TokensPerWord};
use super::settings::{ApiKey, ObserveSettings, ServerApi};

/// Makes the HTTP requests of a run.
pub(super) struct Messages<'a> {
    settings: &'a ObserveSettings,
    authorization: Option<HeaderValue>,
    route: String,
    pub text: PromptText,
    /// How words are counted; `None` for prompts of token ids.
    pub words: Option<TokensPerWord>,
}

impl<'a> Messages<'a> {
    /// # Errors
    /// If the key cannot stand in a header.
    pub fn new(settings: &'a ObserveSettings) -> Result<Self, RunError> {
        let route = match settings.api {
            ServerApi::Completions => "/v1/completions",
            ServerApi::Chat => "/v1/chat/completions",
        };
        Ok(Self {
            settings,
            authorization: bearer(settings.api_key.as_ref())?,
            route: settings.server.route(route),
            text: PromptText { salt: settings.salt, block_size: settings.block_size.max(1) },
            words: None,
        })
    }

    /// The message of `request` of the workload with these names, with a prompt as planned.
    pub fn post(&self, request: &Request, names: &Names) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let prompt = match self.words {
            None => json!(self.text.ids(request)),
            Some(words) => json!(self.text.text(request, words)),
        };
        self.with_prompt(self.prompt(&[], prompt), request, names)
    }

    /// The text that `request` adds to the conversation `before` it: `new_tokens` tokens.
    pub fn added(&self, before: &[Turn], request: &Request, new_tokens: u32) -> String {
        match self.words {
            Some(words) if before.is_empty() => self.text.text(request, words),
            Some(words) => self.text.added(request, new_tokens, words),
            None => String::new(),
        }
    }

    /// The message of `request` that adds `text` to the conversation `before` it.
    pub fn continuing(
        &self,
        before: &[Turn],
        text: &str,
        request: &Request,
        names: &Names,
    ) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        self.with_prompt(self.prompt(before, json!(text)), request, names)
    }

    fn with_prompt(
        &self,
        prompt: Value,
        request: &Request,
        names: &Names,
    ) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let tags = &request.tags;
        let text = |name: Name| (name != Name::NONE).then(|| names.text(name).to_owned());
        let session = (tags.session != Name::NONE).then(|| session_text(names.texts(), tags.session).into_owned());
        let headers = [
            ("x-request-id", Some(format!("request_{}", request.id))),
            ("x-gateway-inference-fairness-id", text(tags.tenant)),
            ("x-gateway-inference-objective", text(tags.slo_class)),
            ("x-session-id", session),
        ];
        let model = text(tags.adapter).unwrap_or_else(|| self.settings.model.clone());
        let mut body = self.body(prompt, request.output_tokens.max(1), &model);
        if let Some(priority) = request.client_priority {
            body.insert("priority".to_owned(), json!(priority));
        }
        self.message(&Value::Object(body), &headers)
    }

    /// A message with `words` words, for the measurement of tokens per word.
    pub fn probe(&self, words: u32) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let prompt = self.prompt(&[], json!(self.text.probe(words)));
        let body = self.body(prompt, 1, &self.settings.model);
        self.message(&Value::Object(body), &[])
    }

    /// The value of `prompt` or `messages`: the conversation `before`, then `last`.
    fn prompt(&self, before: &[Turn], last: Value) -> Value {
        match self.settings.api {
            ServerApi::Completions if before.is_empty() => last,
            ServerApi::Completions => {
                let texts = before.iter().flat_map(|turn| [turn.prompt.as_str(), turn.output.as_str()]);
                json!(texts.chain(last.as_str()).collect::<String>())
            }
            ServerApi::Chat => {
                let message = |role: &str, content: Value| json!({"role": role, "content": content});
                let turns = before.iter().flat_map(|Turn { prompt, output }| {
                    [message("user", json!(prompt)), message("assistant", json!(output))]
                });
                turns.chain([message("user", last)]).collect()
            }
        }
    }

    fn body(&self, prompt: Value, output_tokens: u32, model: &str) -> Map<String, Value> {
        let mut body = Map::new();
        let mut set = |key: &str, value: Value| drop(body.insert(key.to_owned(), value));
        set("model", json!(model));
        match self.settings.api {
            ServerApi::Completions => set("prompt", prompt),
            ServerApi::Chat => set("messages", prompt),
        }
        set("max_tokens", json!(output_tokens));
        if self.settings.exact_lengths {
            set("min_tokens", json!(output_tokens));
            set("ignore_eos", json!(true));
        }
        if self.settings.streaming {
            set("stream", json!(true));
            set("stream_options", json!({"include_usage": true}));
        }
        body
    }

    fn message(
        &self,
        body: &Value,
        headers: &[(&str, Option<String>)],
    ) -> Result<hyper::Request<Full<Bytes>>, hyper::http::Error> {
        let mut message = hyper::Request::post(&self.route)
            .header(HOST, self.settings.server.authority())
            .header(CONTENT_TYPE, "application/json");
        if let Some(authorization) = &self.authorization {
            message = message.header(AUTHORIZATION, authorization.clone());
        }
        for (name, value) in headers {
            if let Some(value) = value {
                message = message.header(*name, value);
            }
        }
        message.body(Full::new(Bytes::from(body.to_string())))
    }
}

/// The value of the header `Authorization` for a key, if there is one.
///
/// # Errors
/// If the key cannot stand in a header.
pub(crate) fn bearer(key: Option<&ApiKey>) -> Result<Option<HeaderValue>, RunError> {
    let value = |key: &ApiKey| -> Result<HeaderValue, RunError> {
        let mut value = HeaderValue::try_from(format!("Bearer {}", key.0))
            .map_err(|_| RunError::usage("the API key has characters that no header may have"))?;
        value.set_sensitive(true);
        Ok(value)
    };
    key.map(value).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::ServerUrl;
    use crate::observe::settings::{PromptForm, SessionContext};
    use blis_sim::ids::RequestId;
    use blis_sim::request::Tags;
    use blis_sim::units::Micros;
    use http_body_util::BodyExt as _;
    use std::time::Duration;

    fn settings(api: ServerApi) -> ObserveSettings {
        ObserveSettings {
            server: ServerUrl::parse("http://127.0.0.1:9/x").unwrap(),
            model: "m".to_owned(),
            api_key: Some(ApiKey("secret".to_owned())),
            api,
            prompts: PromptForm::Ids,
            context: SessionContext::Planned,
            streaming: true,
            exact_lengths: true,
            max_concurrency: None,
            warmup_requests: 0,
            record_itl: false,
            timeout: Duration::from_secs(1),
            salt: 1,
            block_size: 16,
            seed: 42,
        }
    }

    fn body(message: hyper::Request<Full<Bytes>>) -> Value {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let bytes = runtime.block_on(message.into_body().collect()).unwrap().to_bytes();
        serde_json::from_slice(&bytes).unwrap()
    }

    #[test]
    fn a_completion_asks_for_exact_lengths() {
        let settings = settings(ServerApi::Completions);
        let mut names = Names::default();
        let tags = Tags { tenant: names.intern("acme"), ..Tags::default() };
        let request = Request { tags, ..Request::new(RequestId(3), Micros::ZERO, 5, 7) };
        let message = Messages::new(&settings).unwrap().post(&request, &names).unwrap();
        assert_eq!(message.uri().path(), "/x/v1/completions");
        assert_eq!(message.headers()["x-gateway-inference-fairness-id"], "acme");
        assert_eq!(message.headers()[AUTHORIZATION], "Bearer secret");
        let shown = format!("{settings:?} {:?}", message.headers());
        assert!(!shown.contains("secret"), "{shown}");
        let body = body(message);
        assert_eq!(body["prompt"].as_array().map(Vec::len), Some(5));
        for (key, value) in [("max_tokens", json!(7)), ("min_tokens", json!(7)), ("ignore_eos", json!(true))] {
            assert_eq!(body[key], value, "{key}");
        }
    }

    #[test]
    fn a_chat_has_one_message_of_words() {
        let settings = ObserveSettings { exact_lengths: false, streaming: false, ..settings(ServerApi::Chat) };
        let mut messages = Messages::new(&settings).unwrap();
        messages.words = Some(TokensPerWord { around: 4.0, each: 2.0 });
        let request = Request::new(RequestId(3), Micros::ZERO, 24, 7);
        let body = body(messages.post(&request, &Names::default()).unwrap());
        let text = body["messages"][0]["content"].as_str().unwrap();
        assert_eq!(text.split_whitespace().count(), 10);
        assert_eq!((body.get("min_tokens"), body.get("stream")), (None, None));
    }

    #[test]
    fn a_conversation_goes_before_the_words_that_a_round_adds() {
        let turn = |prompt: &str, output: &str| Turn { prompt: prompt.to_owned(), output: output.to_owned() };
        let before = [turn(" a", " b"), turn(" c", " d")];
        let request = Request::new(RequestId(3), Micros::ZERO, 24, 7);
        let body_of = |api| {
            let settings = settings(api);
            let mut messages = Messages::new(&settings).unwrap();
            messages.words = Some(TokensPerWord { around: 4.0, each: 2.0 });
            let added = messages.added(&before, &request, 6);
            assert_eq!(added.split_whitespace().count(), 3);
            assert_eq!(messages.added(&[], &request, 6).split_whitespace().count(), 10, "the whole prompt");
            (body(messages.continuing(&before, &added, &request, &Names::default()).unwrap()), added)
        };
        let (completion, added) = body_of(ServerApi::Completions);
        assert_eq!(completion["prompt"], format!(" a b c d{added}"));
        let (chat, added) = body_of(ServerApi::Chat);
        let message = |role: &str, content: &str| json!({"role": role, "content": content});
        let earlier =
            [message("user", " a"), message("assistant", " b"), message("user", " c"), message("assistant", " d")];
        assert_eq!(chat["messages"].as_array().unwrap()[..4], earlier);
        assert_eq!(chat["messages"][4], message("user", &added));
    }

    #[test]
    fn a_key_that_is_no_header_is_refused_without_being_shown() {
        let bad = ObserveSettings { api_key: Some(ApiKey("se\ncret".to_owned())), ..settings(ServerApi::Chat) };
        let error = Messages::new(&bad).err().expect("refused").to_string();
        assert!(error.contains("API key") && !error.contains("cret"), "{error}");
    }
}
