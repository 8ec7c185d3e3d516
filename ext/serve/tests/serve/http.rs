//! Answers over TCP.

use std::io::{Read, Write};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use serve::chat::Template;
use serve::model::Specials;

use crate::toy::{Bytes, END, Server, Toy, events, post, receive, setup};

const COMPLETIONS: &str = "/v1/completions";
const CHAT: &str = "/v1/chat/completions";

/// The whole answer with its head.
fn raw(mut stream: std::net::TcpStream) -> String {
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

fn text(answer: &Value) -> String {
    answer["choices"][0]["text"].as_str().unwrap().to_owned()
}

#[test]
fn a_completion_has_openais_shape() {
    let server = Server::start();
    let answer =
        server.complete(r#"{"model": "toy", "prompt": "once", "max_tokens": 5, "seed": 1}"#);
    assert_eq!(answer["object"], "text_completion");
    assert_eq!(answer["model"], "toy");
    assert!(answer["id"].as_str().unwrap().starts_with("cmpl-") && answer["created"].is_u64());
    let choice = &answer["choices"][0];
    assert_eq!((&choice["index"], &choice["logprobs"]), (&json!(0), &Value::Null));
    assert_eq!(choice["finish_reason"], "length");
    // The mark before a text is one of the prompt's tokens.
    let usage = json!({ "prompt_tokens": 5, "completion_tokens": 5, "total_tokens": 10 });
    assert_eq!(answer["usage"], usage);
    // The same seed, the same text; another one, another text; none, a new one each time.
    let ask = |rest: &str| {
        text(&server.complete(&format!(r#"{{"prompt": "once", "max_tokens": 12{rest}}}"#)))
    };
    assert_eq!(ask(r#", "seed": 1"#), ask(r#", "seed": 1"#));
    assert_ne!(ask(r#", "seed": 1"#), ask(r#", "seed": -1"#));
    assert_ne!(ask(""), ask(""));
    assert_eq!(ask(r#", "temperature": 0"#), ask(r#", "temperature": 0, "seed": 4"#));
    // Without `max_tokens`, OpenAI's 16.
    assert_eq!(server.complete(r#"{"prompt": "once"}"#)["usage"]["completion_tokens"], 16);
}

#[test]
fn prompts_are_texts_or_tokens_one_or_several() {
    let server = Server::start();
    let ask = |prompt: Value, marked: bool| {
        let body = json!({
            "prompt": prompt, "max_tokens": 6, "seed": 3, "temperature": 0.7,
            "add_special_tokens": marked,
        });
        let answer = server.complete(&body.to_string());
        let texts: Vec<String> = answer["choices"]
            .as_array()
            .unwrap()
            .iter()
            .enumerate()
            .map(|(at, choice)| {
                assert_eq!(choice["index"], at);
                choice["text"].as_str().unwrap().to_owned()
            })
            .collect();
        texts
    };
    let alone = [ask(json!("hi"), true), ask(json!("there"), true)].concat();
    assert_eq!(ask(json!(["hi", "there"]), true), alone);
    assert_eq!(ask(json!([256, 104, 105]), true), alone[..1]);
    assert_eq!(ask(json!([[256, 104, 105], "there"]), true), alone);
    assert_eq!(ask(json!([104, 105]), true), ask(json!("hi"), false));
    assert_ne!(ask(json!("hi"), false), alone[..1]);
    // Several answers have their own seeds.
    let several = server.complete(r#"{"prompt": "hi", "n": 3, "seed": 3, "max_tokens": 6}"#);
    let choices = several["choices"].as_array().unwrap();
    let first = server.complete(r#"{"prompt": "hi", "seed": 3, "max_tokens": 6}"#);
    assert_eq!(choices[0]["text"], first["choices"][0]["text"]);
    let second = server.complete(r#"{"prompt": "hi", "seed": 4, "max_tokens": 6}"#);
    assert_eq!(choices[1]["text"], second["choices"][0]["text"]);
    assert_eq!(several["usage"]["prompt_tokens"], 3);
}

/// As lm-evaluation-harness asks for the likelihood of a text.
#[test]
fn echo_and_logprobs_score_the_prompt() {
    let server = Server::start();
    let ask = |most: usize| {
        let body = json!({
            "prompt": [104, 105, 256, 106], "max_tokens": most, "logprobs": 1, "echo": true,
            "temperature": 0, "seed": 1234,
        });
        server.complete(&body.to_string())["choices"][0].clone()
    };
    let (none, one) = (ask(0), ask(1));
    assert_eq!(none["text"], "hij");
    assert_eq!(none["finish_reason"], "length");
    let lists = &none["logprobs"];
    assert_eq!(lists["tokens"], json!(["h", "i", "<|bos|>", "j"]));
    assert_eq!(lists["text_offset"], json!([0, 1, 2, 2]));
    assert_eq!(lists["token_logprobs"][0], Value::Null);
    assert_eq!(lists["top_logprobs"][0], Value::Null);
    for at in 1..4 {
        let logprob = lists["token_logprobs"][at].as_f64().unwrap();
        let top = lists["top_logprobs"][at].as_object().unwrap();
        // The likeliest, and the token itself.
        assert!(top.values().all(|other| other.as_f64().unwrap() >= logprob), "{top:?}");
        assert!(logprob < 0.0 && (1..=2).contains(&top.len()));
        assert_eq!(top[lists["tokens"][at].as_str().unwrap()].as_f64(), Some(logprob));
    }
    // One token more, and the same numbers before it.
    assert_eq!(one["logprobs"]["token_logprobs"].as_array().unwrap().len(), 5);
    assert_eq!(
        one["logprobs"]["token_logprobs"].as_array().unwrap()[..4],
        none["logprobs"]["token_logprobs"].as_array().unwrap()[..]
    );
    let greedy = one["logprobs"]["top_logprobs"][4].as_object().unwrap();
    assert_eq!(greedy.len(), 1);
}

#[test]
fn a_stream_is_the_whole_answer_in_pieces() {
    let server = Server::start();
    for (path, asked) in [
        (COMPLETIONS, json!({ "prompt": "once", "max_tokens": 20, "seed": 6 })),
        (
            COMPLETIONS,
            json!({ "prompt": ["a", "b"], "n": 2, "max_tokens": 9, "seed": 6, "echo": true }),
        ),
        (
            COMPLETIONS,
            json!({ "prompt": "one", "max_tokens": 9, "seed": 6, "echo": true, "logprobs": 2 }),
        ),
        (
            COMPLETIONS,
            json!({ "prompt": "stop", "max_tokens": 80, "seed": 6, "stop": ["e", "qq"] }),
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 20, "seed": 2 }),
        ),
        (
            CHAT,
            json!({ "messages": [{ "role": "user", "content": "hi" }], "max_tokens": 7, "seed": 2, "logprobs": true, "top_logprobs": 3 }),
        ),
    ] {
        let answer = server.answer(path, &asked.to_string());
        let mut streamed = asked.clone();
        streamed["stream"] = json!(true);
        streamed["stream_options"] = json!({ "include_usage": true });
        let (status, body) = server.post(path, &streamed.to_string());
        assert_eq!(status, 200, "{body}");
        let (mut pieces, done) = events(&body);
        assert!(done, "{body}");
        let last = pieces.pop().unwrap();
        assert!(pieces.iter().all(|piece| piece.get("usage") == Some(&Value::Null)), "{body}");
        let finish = &pieces[pieces.len() - 1]["choices"][0];
        assert!(finish["finish_reason"].is_string() && finish["logprobs"].is_null(), "{body}");
        assert_eq!((&last["usage"], &last["choices"]), (&answer["usage"], &json!([])));
        for choice in answer["choices"].as_array().unwrap() {
            assert_pieces_add_up(path, &pieces, choice);
        }
        if path == CHAT {
            assert_eq!(pieces[0]["choices"][0]["delta"]["role"], "assistant");
            assert_eq!(pieces[0]["object"], "chat.completion.chunk");
        }
    }
}

/// The pieces of a stream that belong to a choice have its text and probabilities.
fn assert_pieces_add_up(path: &str, pieces: &[Value], choice: &Value) {
    let parts = pieces.iter().map(|piece| &piece["choices"][0]);
    let parts: Vec<&Value> = parts.filter(|piece| piece["index"] == choice["index"]).collect();
    let wanted = match path {
        CHAT => &choice["message"]["content"],
        _ => &choice["text"],
    };
    let texts = parts.iter().map(|piece| match path {
        CHAT => piece["delta"]["content"].as_str().unwrap_or_default(),
        _ => piece["text"].as_str().unwrap(),
    });
    assert_eq!(&json!(texts.collect::<String>()), wanted);
    assert_eq!(parts.last().unwrap()["finish_reason"], choice["finish_reason"]);
    for list in ["tokens", "token_logprobs", "top_logprobs", "text_offset", "content"] {
        if let Some(complete) = choice["logprobs"].get(list) {
            let pieces = parts.iter().filter_map(|piece| piece["logprobs"].get(list)?.as_array());
            assert_eq!(&json!(pieces.flatten().collect::<Vec<_>>()), complete, "{list}");
        }
    }
}

#[test]
fn a_stop_string_ends_a_text_before_it() {
    let server = Server::start();
    let ask = |rest: &str| {
        server.complete(&format!(r#"{{"prompt": "once", "seed": 9, "max_tokens": 60{rest}}}"#))
    };
    let uncut = text(&ask(""));
    let stop: String = uncut.chars().skip(7).take(2).collect();
    let at = uncut.find(&stop).unwrap();
    let cut = ask(&format!(r#", "stop": "{stop}""#));
    assert_eq!(text(&cut), uncut[..at]);
    assert_eq!(cut["choices"][0]["finish_reason"], "stop");
    assert_eq!(cut["usage"]["completion_tokens"], at + 2);
}

#[test]
fn a_conversation_is_a_prompt_by_its_template() {
    let server = Server::start();
    let messages = json!([
        { "role": "system", "content": "Be brief." },
        { "role": "user", "content": [{ "type": "text", "text": " hi " }, { "type": "text", "text": "you " }] },
    ]);
    let ids = server.answer("/tokenize", &json!({ "messages": messages }).to_string());
    // The template writes no mark before the text, so there is none.
    let mut wanted = vec![258u64];
    wanted.extend("system:Be brief.".bytes().map(u64::from));
    wanted.extend([259, 258]);
    wanted.extend("user:hi \nyou".bytes().map(u64::from));
    wanted.push(259);
    assert_eq!(ids["tokens"], json!(wanted));
    assert_eq!((&ids["count"], &ids["max_model_len"]), (&json!(wanted.len()), &json!(100)));
    let body = json!({ "messages": messages, "seed": 4, "max_completion_tokens": 5 });
    let answer = server.answer(CHAT, &body.to_string());
    let choice = &answer["choices"][0];
    assert_eq!(choice["message"]["role"], "assistant");
    let plain =
        server.complete(&json!({ "prompt": wanted, "seed": 4, "max_tokens": 5 }).to_string());
    assert_eq!(choice["message"]["content"], plain["choices"][0]["text"]);
    // Without a maximum, up to the context's end.
    let long = server.answer(CHAT, &json!({ "messages": messages, "seed": 4 }).to_string());
    assert_eq!(long["choices"][0]["finish_reason"], "length");
    assert_eq!(long["usage"]["total_tokens"], 100);
}

/// `apply_chat_template(messages, continue_final_message=True)` of transformers 5.24 gives these texts.
#[test]
fn the_last_message_is_continued() {
    let body = "{% for m in messages %}[{{ m.role }}] CONTENT<|end|>{% endfor %}";
    let parts = "{% for p in m.content %}{{ p.text }}{% endfor %}";
    let (plain, two) = (json!("the a "), json!([{ "type": "text", "text": "x" }, "the a "]));
    for (content, last, wanted) in [
        ("{{ m.content }}", &plain, "[user] q<|end|>[assistant] the a "),
        ("{{ m.content | trim }}", &plain, "[user] q<|end|>[assistant] the a"),
        (parts, &two, "[user] q<|end|>[assistant] xthe a "),
    ] {
        let mut setup = setup();
        setup.template = Template::new(&body.replace("CONTENT", content), [].into()).unwrap();
        let server = Server::with(Toy::default(), setup);
        let first = if content == parts { json!(["q"]) } else { json!("q") };
        let messages =
            json!([{ "role": "user", "content": first }, { "role": "assistant", "content": last }]);
        let asked = json!({ "messages": messages, "continue_final_message": true }).to_string();
        let ids = server.answer("/tokenize", &asked)["tokens"].clone();
        let wanted = server.answer(
            "/tokenize",
            &json!({ "prompt": wanted, "add_special_tokens": false }).to_string(),
        );
        // The toy's tokens of a text have no special ones.
        let wanted = wanted["tokens"].to_string().replace(&end_bytes(), &END.to_string());
        assert_eq!(ids.to_string(), wanted);
    }
    let server = Server::start();
    let message = json!([{ "role": "user", "content": "hi" }]);
    for (asked, part) in [
        (
            json!({ "messages": message, "continue_final_message": true, "add_generation_prompt": true }),
            "leave it out",
        ),
        (
            json!({ "messages": [{ "role": "user" }], "continue_final_message": true }),
            "needs a last message with a text",
        ),
    ] {
        let (status, text) = server.post(CHAT, &asked.to_string());
        assert!(status == 400 && text.contains(part), "{text}");
    }
}

/// The bytes of `<|end|>`, as a JSON list has them.
fn end_bytes() -> String {
    "<|end|>".bytes().map(|byte| byte.to_string()).collect::<Vec<_>>().join(",")
}

/// The rest of a refused request is read, so the next one on the connection is answered.
#[test]
fn a_refused_request_does_not_break_its_connection() {
    let server = Server::start();
    for path in ["/v1/responses", "/health", COMPLETIONS] {
        let request = post(path, &"x".repeat(2000), "").replace("Connection: close\r\n", "");
        let request = if path == COMPLETIONS { request.replace("/json", "/text") } else { request };
        let (head, body) = request.split_once("\r\n\r\n").unwrap();
        let mut stream = server.send(&format!("{head}\r\n\r\n"));
        std::thread::sleep(Duration::from_millis(20));
        stream.write_all(body.as_bytes()).unwrap();
        stream
            .write_all(post(COMPLETIONS, r#"{"prompt": "a", "max_tokens": 1}"#, "").as_bytes())
            .unwrap();
        let both = raw(stream);
        assert_eq!(both.matches("HTTP/1.1 ").count(), 2, "{both}");
        assert!(both.contains("HTTP/1.1 200"), "{both}");
    }
    // One that never sends the rest is told that the connection ends.
    let request = post("/v1/responses", "", "").replace("Content-Length: 0", "Content-Length: 9");
    let request = request.replace("Connection: close\r\n", "");
    assert!(raw(server.send(&request)).contains("connection: close"));
}

#[test]
fn what_clients_write_differently_is_the_same() {
    let server = Server::start();
    let plain = server.complete(r#"{"prompt": "a", "max_tokens": 3, "seed": 4, "top_k": 7}"#);
    for body in [
        r#"{"prompt": "a", "max_tokens": 3.0, "seed": 4.0, "top_k": 7.0, "n": 1.0, "model": ""}"#,
        r#"{"prompt": "a", "max_completion_tokens": 3, "max_tokens": 9, "seed": 4, "top_k": 7}"#,
        "\u{feff}{\"prompt\": \"a\", \"max_tokens\": 3, \"seed\": 4, \"top_k\": 7}",
    ] {
        assert_eq!(text(&server.complete(body)), text(&plain), "{body}");
    }
    for (path, status) in
        [("/health/", 200), ("/v1/models/", 200), ("/metrics/", 200), ("/v1/models/%ff", 400)]
    {
        let (found, text) = server.get(path);
        assert_eq!(found, status, "{path}: {text}");
        assert!(status == 200 || text.starts_with("{\"error\""), "{text}");
    }
    let body = r#"{"prompt": "a", "max_tokens": 1}"#;
    let typed = post("/v1/completions/", body, "")
        .replace("application/json", "application/vnd.x+json; charset=utf-8");
    assert_eq!(receive(server.send(&typed.replace("Host: localhost", "Host: LOCALHOST"))).0, 200);
}

#[test]
fn an_echo_is_the_text_that_was_sent_and_offsets_count_its_characters() {
    let server = Server::start();
    let answer =
        server.complete(r#"{"prompt": "\u00e9a b", "max_tokens": 0, "echo": true, "logprobs": 0}"#);
    assert_eq!(text(&answer), "éa b");
    let lists = &answer["choices"][0]["logprobs"];
    assert_eq!(lists["tokens"], json!(["<|bos|>", "bytes:\\xc3", "bytes:\\xa9", "a", " ", "b"]));
    assert_eq!(lists["text_offset"], json!([0, 0, 0, 1, 2, 3]));
    // Bytes that are no character are one �.
    let ids = server.complete(
        r#"{"prompt": [195, 97, 233, 98], "max_tokens": 0, "echo": true, "logprobs": 0}"#,
    );
    assert_eq!(text(&ids), "�a�b");
    assert_eq!(ids["choices"][0]["logprobs"]["text_offset"], json!([0, 0, 2, 2]));
}

#[test]
fn a_template_decides_whether_a_conversation_begins_with_a_mark() {
    let first = |template: Template, codec: Bytes| {
        let mut setup = setup();
        (setup.template, setup.codec) = (template, Arc::new(codec));
        let body = json!({ "messages": [{ "role": "user", "content": "hi" }] }).to_string();
        Server::with(Toy::default(), setup).answer("/tokenize", &body)["tokens"][0].clone()
    };
    let body = "{% for m in messages %}{{ m.content }}{% endfor %}";
    let new = |text: &str| Template::new(text, [].into()).unwrap();
    assert_eq!(first(new(body), Bytes::new()), 104);
    assert_eq!(first(new(&format!("<|bos|>{body}")), Bytes::new()), 256);
    // Ours is for models without a template: their texts begin as in training.
    assert_eq!(first(Template::plain(), Bytes::new()), 256);
    // Nor can a template write a mark that has no text.
    assert_eq!(first(new(body), Bytes { specials: Specials::default() }), 256);
}

/// Clients of agents and proxies send them with every request.
#[test]
fn fields_that_change_nothing_are_taken_and_unknown_ones_named() {
    let server = Server::start();
    let messages = json!([
        { "role": "user", "content": "hi", "type": "text", "name": "me" },
        { "role": "assistant", "content": "", "tool_calls": [{ "id": "1", "type": "function", "function": { "name": "f", "arguments": "{\"b\": 1, \"a\": 2}" } }] },
        { "role": "user", "content": [{ "type": "text", "text": "a" }, { "type": "text", "text": "b" }], "tool_call_id": "1" },
    ]);
    let body = json!({
        "messages": messages, "max_tokens": 1, "store": false, "metadata": {}, "parallel_tool_calls": true,
        "service_tier": "auto", "max_completion_tokens": 2, "chat_template_kwargs": { "enable_thinking": false }, "tool_choice": "auto",
        "tools": [], "reasoning_effort": "low", "strange": [1],
    });
    let answer = raw(server.start_post(CHAT, &body.to_string()));
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("x-ignored-fields: strange\r\n"), "{answer}");
    // The body of a completion shows its tokens as it is.
    for (path, body, ignored) in [
        (
            "/tokenize",
            json!({ "messages": messages, "temperature": 0.5, "tool_choice": "auto" }),
            "temperature, tool_choice",
        ),
        ("/detokenize", json!({ "tokens": [97], "strange": 1 }), "strange"),
    ] {
        let answer = raw(server.start_post(path, &body.to_string()));
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        assert!(answer.contains(&format!("x-ignored-fields: {ignored}\r\n")), "{answer}");
    }
    // What would change them is not.
    for (path, body, field) in [
        ("/tokenize", json!({ "messages": messages, "chat_template": "x" }), "chat_template"),
        (
            "/detokenize",
            json!({ "tokens": [97], "skip_special_tokens": false }),
            "skip_special_tokens",
        ),
    ] {
        let (status, text) = server.post(path, &body.to_string());
        assert!(status == 400 && text.contains(field), "{text}");
    }
}

#[test]
fn a_template_sees_fields_of_messages_tools_and_options() {
    let mut setup = setup();
    let template = "{% for m in messages %}{{ m.tool_calls[0].function.arguments | tojson if m.tool_calls }}{{ m.content }}|{% endfor %}\
                    {{ tools | tojson if tools }}{{ thinking }}{{ add_generation_prompt }}";
    setup.template = Template::new(template, [].into()).unwrap();
    let server = Server::with(Toy::default(), setup);
    // Keys in the order of the text.
    let body = r#"{"messages": [{"role": "assistant", "content": null, "tool_calls": [{"function": {"arguments": "{\"b\": 1, \"a\": true}"}}]}, {"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "tools": [{"z": 1, "a": null}], "chat_template_kwargs": {"thinking": "T"}, "add_generation_prompt": false}"#;
    let ids = server.answer("/tokenize", body)["tokens"].clone();
    let bytes: Vec<u8> =
        ids.as_array().unwrap().iter().map(|id| id.as_u64().unwrap() as u8).collect();
    assert_eq!(
        String::from_utf8(bytes).unwrap(),
        r#"{"b": 1, "a": true}|x|[{"z": 1, "a": null}]TFalse"#
    );
}

#[test]
fn penalties_and_biases_change_what_is_drawn() {
    let server = Server::start();
    let ask = |more: &str| {
        text(&server.complete(&format!(
            r#"{{"prompt": "once", "max_tokens": 12, "temperature": 0{more}}}"#
        )))
    };
    let plain = ask("");
    assert_eq!(ask(r#", "presence_penalty": 0, "repetition_penalty": 1, "logit_bias": {}"#), plain);
    assert_eq!(ask(r#", "logit_bias": {"113": 100}"#), "q".repeat(12));
    let penalized = ask(r#", "logit_bias": {"113": 7}, "frequency_penalty": 2"#);
    assert!(penalized.contains('q') && penalized != "q".repeat(12), "{penalized}");
    let repeated = ask(r#", "logit_bias": {"113": 100}, "repetition_penalty": 100"#);
    assert_ne!(repeated, "q".repeat(12));
}

/// A page of this machine may use a server without being named; others are named at its start.
#[test]
fn pages_of_allowed_origins_are_answered() {
    let mut setup = setup();
    setup.origins = vec!["https://pytorch.org".to_owned()];
    let server = Server::with(Toy::default(), setup);
    let preflight = |origin: &str| {
        raw(server.send(&format!(
            "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nOrigin: {origin}\r\nAccess-Control-Request-Method: POST\r\nConnection: close\r\n\r\n"
        )))
    };
    for origin in
        ["http://localhost:3000", "http://127.0.0.1", "http://[::1]:8080", "https://pytorch.org"]
    {
        let answer = preflight(origin);
        assert!(answer.starts_with("HTTP/1.1 204"), "{origin}: {answer}");
        assert!(answer.contains(&format!("access-control-allow-origin: {origin}\r\n")), "{answer}");
        let body = r#"{"prompt": "a"}"#;
        let answer = raw(server.send(&post(COMPLETIONS, body, &format!("Origin: {origin}\r\n"))));
        assert!(answer.contains(&format!("access-control-allow-origin: {origin}\r\n")), "{answer}");
    }
    for origin in ["https://arxiv.org", concat!("http:", "//localhost.evil"), "null"] {
        let answer = preflight(origin);
        assert!(
            answer.starts_with("HTTP/1.1 403") && !answer.contains("access-control-allow"),
            "{answer}"
        );
    }
}

#[test]
fn a_request_keeps_its_id() {
    let server = Server::start();
    let named =
        raw(server.send(&post(COMPLETIONS, r#"{"prompt": "a"}"#, "X-Request-Id: mine-7\r\n")));
    assert!(named.contains("x-request-id: mine-7\r\n"), "{named}");
    let other = raw(server.start_post(COMPLETIONS, r#"{"prompt": "a"}"#));
    assert!(other.contains("x-request-id: req-"), "{other}");
}

#[test]
fn text_becomes_tokens_and_tokens_text() {
    let server = Server::start();
    let ids = server.answer("/tokenize", r#"{"model": "toy", "prompt": "hé"}"#);
    assert_eq!(ids["tokens"], json!([256, 104, 195, 169]));
    let ids = server.answer("/tokenize", r#"{"prompt": "hé", "add_special_tokens": false}"#);
    assert_eq!(ids["tokens"], json!([104, 195, 169]));
    let text = server.answer("/detokenize", r#"{"tokens": [256, 104, 195, 169, 195]}"#);
    assert_eq!(text["prompt"], "hé\u{fffd}");
}

#[test]
fn models_health_and_metrics_are_served() {
    let server = Server::start();
    let models: Value = serde_json::from_str(&server.get("/v1/models").1).unwrap();
    assert_eq!(models["data"][0]["id"], "toy");
    assert_eq!(models["data"][0]["max_model_len"], 100);
    assert_eq!((server.get("/v1/models/toy").0, server.get("/v1/models/").0), (200, 200));
    let (status, said) = server.get("/v1/models/other");
    assert_eq!(status, 404);
    assert!(said.contains("the model `other` is not here; this server has `toy`"), "{said}");
    assert_eq!(
        server.get("/health"),
        (200, r#"{"running":0,"status":"ok","waiting":0}"#.to_owned())
    );
    server.complete(r#"{"prompt": "abc", "max_tokens": 7, "seed": 1}"#);
    assert_eq!(server.metric("prompt_tokens_total"), 4.0);
    assert!(server.metric("generated_tokens_total") > 0.0);
    assert_eq!(server.metric("resident_memory_bytes"), 12345.0);
    let text = server.get("/metrics").1;
    for line in [
        "# TYPE canonc_request_seconds histogram",
        "canonc_requests_total{status=\"404\"} 1",
        "canonc_first_token_seconds_count 1",
        "canonc_first_token_seconds_bucket{le=\"+Inf\"} 1",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
}

/// At any number of requests at a time, in any order, with others that leave.
#[test]
fn an_answer_does_not_depend_on_other_requests() {
    let server = Server::with(Toy { step: Duration::from_millis(1), broken: None }, setup());
    let body = |n: usize| {
        let prompt = "once upon a time".repeat(3);
        let prompt = &prompt[..1 + 5 * (n % 7)];
        json!({ "prompt": prompt, "seed": n, "max_tokens": 5 + n, "logprobs": 1, "echo": n.is_multiple_of(2) })
            .to_string()
    };
    let choices = |text: &str| serde_json::from_str::<Value>(text).unwrap()["choices"].clone();
    let alone: Vec<Value> =
        (0..32).map(|n| choices(&server.post(COMPLETIONS, &body(n)).1)).collect();
    for round in 0..3usize {
        std::thread::scope(|scope| {
            let ask = |n: usize| {
                let (server, body) = (&server, body(n));
                // Some go away at once.
                drop(server.start_post(COMPLETIONS, &body));
                scope.spawn(move || (n, server.post(COMPLETIONS, &body)))
            };
            let order = (0..32).map(|n| (n * 13 + round * 7) % 32);
            let asked: Vec<_> = order.map(ask).collect();
            for one in asked {
                let (n, (status, text)) = one.join().unwrap();
                assert_eq!((status, &choices(&text)), (200, &alone[n]), "request {n}: {text}");
            }
        });
    }
}

#[test]
fn a_client_that_leaves_takes_its_work_with_it() {
    let mut long = setup();
    long.context = 1 << 20;
    let server = Server::with(Toy { step: Duration::from_millis(1), broken: None }, long);
    for stream in [false, true] {
        let before = server.metric("cancelled_total");
        let body = json!({ "prompt": "x", "max_tokens": 1_000_000, "stream": stream });
        let mut connection = server.start_post(COMPLETIONS, &body.to_string());
        server.until("sequences_running", |running| running == 1.0);
        if stream {
            connection.read_exact(&mut [0; 64]).unwrap();
        }
        drop(connection);
        server.until("cancelled_total", |cancelled| cancelled == before + 1.0);
        server.until("sequences_running", |running| running == 0.0);
    }
    server.until("connections", |open| open <= 1.0);
}

#[test]
fn a_slow_reader_stops_nobody() {
    let mut long = setup();
    long.context = 1 << 20;
    let server = Server::with(Toy::default(), long);
    let body =
        json!({ "prompt": "x", "max_tokens": 20_000, "stream": true, "logprobs": 9, "seed": 1 });
    // It reads nothing, and the system's buffers are soon full.
    let slow = server.start_post(COMPLETIONS, &body.to_string());
    server.until("generated_tokens_total", |tokens| tokens > 0.0);
    for n in 0..5 {
        server.complete(&json!({ "prompt": "y", "max_tokens": 50, "seed": n }).to_string());
    }
    let (status, text) = receive(slow);
    assert!(status == 200 && events(&text).1);
}

#[test]
fn the_end_lets_running_answers_finish() {
    let mut long = setup();
    long.context = 1 << 20;
    let server = Server::with(Toy { step: Duration::from_millis(1), broken: None }, long);
    let body = json!({ "prompt": "x", "max_tokens": 300, "seed": 1, "stream": true });
    let running = server.start_post(COMPLETIONS, &body.to_string());
    // A connection that is open already, for a request after the call.
    let mut open = server.send("");
    server.until("sequences_running", |running| running == 1.0);
    server.call_to_end();
    // A load balancer asks, before the answer is whole.
    server.until_ending();
    open.write_all(post(COMPLETIONS, r#"{"prompt": "y"}"#, "").as_bytes()).unwrap();
    assert_eq!(receive(open).0, 503);
    let (status, text) = receive(running);
    assert!(status == 200 && events(&text).1, "{text}");
    while !server.is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn the_end_does_not_wait_for_ever() {
    let mut short = setup();
    short.context = 1 << 30;
    short.grace = Duration::from_millis(50);
    let server = Server::with(Toy { step: Duration::from_millis(1), broken: None }, short);
    let body = json!({ "prompt": "x", "max_tokens": 1_000_000_000, "stream": true });
    let streamed = server.start_post(COMPLETIONS, &body.to_string());
    let body = json!({ "prompt": "x", "max_tokens": 1_000_000_000, "n": 3 });
    let unstreamed = server.start_post(COMPLETIONS, &body.to_string());
    server.until("sequences_running", |running| running == 4.0);
    server.call_to_end();
    while !server.is_over() {
        std::thread::sleep(Duration::from_millis(5));
    }
    drop((streamed, unstreamed));
}
