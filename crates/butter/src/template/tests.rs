use std::time::Duration;

use serde::Deserialize;
use serde_json::{Map, json};

use super::*;
use crate::testing::{TestFolder, fixture, model_file};
use crate::weights::gguf::builder::Builder;

/// Made by `scripts/reference/template_fixture.py`.
#[derive(Deserialize)]
struct Fixture {
    templates: Map<String, Json>,
    tokens: Map<String, Json>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    template: String,
    messages: Vec<Json>,
    tools: Option<Vec<Json>>,
    add_generation_prompt: bool,
    variables: Map<String, Json>,
    expected: String,
}

fn template(source: &str) -> ChatTemplate {
    ChatTemplate::new(source, Vec::new()).expect("valid")
}

fn render(source: &str) -> Result<String, TemplateError> {
    ChatTemplate::new(source, Vec::new())?.render(&Conversation::default())
}

fn assert_equals_hugging_face(name: &str, template: &ChatTemplate) {
    let fixture: Fixture =
        serde_json::from_slice(&fixture("template/conversations.json")).expect("valid JSON");
    let mut seen = 0;
    for case in fixture.cases.iter().filter(|case| case.template == name) {
        let variables: Vec<(String, Json)> = case.variables.clone().into_iter().collect();
        let conversation = Conversation {
            messages: &case.messages,
            tools: case.tools.as_deref(),
            add_generation_prompt: case.add_generation_prompt,
            variables: &variables,
            ..Conversation::default()
        };
        assert_eq!(template.render(&conversation).expect("renders"), case.expected);
        seen += 1;
    }
    assert!(seen > 0, "no case for {name}");
}

fn committed(name: &str) -> ChatTemplate {
    let fixture: Fixture =
        serde_json::from_slice(&fixture("template/conversations.json")).expect("valid JSON");
    let tokens = fixture.tokens[name].as_object().expect("an object").clone();
    let tokens = tokens
        .into_iter()
        .map(|(key, value)| (key, value.as_str().expect("text").to_owned()))
        .collect();
    ChatTemplate::new(fixture.templates[name].as_str().expect("text"), tokens).expect("valid")
}

fn installed(name: &str) -> Option<ChatTemplate> {
    let config = model_file(&format!("tokenizers/{name}/tokenizer_config.json"))?;
    ChatTemplate::from_folder(config.parent().expect("a folder")).expect("valid")
}

#[test]
fn smollm2_equals_hugging_face() {
    assert_equals_hugging_face("smollm2", &committed("smollm2"));
}

#[test]
fn features_equal_hugging_face() {
    assert_equals_hugging_face("features", &committed("features"));
}

#[test]
fn llama3_equals_hugging_face() {
    let Some(template) = installed("llama3_1") else { return };
    assert_equals_hugging_face("llama3_1", &template);
}

#[test]
fn qwen3_equals_hugging_face() {
    let Some(template) = installed("qwen3") else { return };
    assert_equals_hugging_face("qwen3", &template);
}

#[test]
fn gemma3_equals_hugging_face() {
    let Some(template) = installed("gemma3") else { return };
    assert_equals_hugging_face("gemma3", &template);
}

#[test]
fn raised_exception_is_a_refusal_with_its_message() {
    for source in [
        "{{ raise_exception('roles must alternate') }}",
        "{% macro m() %}{{ raise_exception('roles must alternate') }}{% endmacro %}{{ m() }}",
    ] {
        match render(source) {
            Err(TemplateError::Refused(message)) => assert_eq!(message, "roles must alternate"),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn syntax_error_names_the_line() {
    match ChatTemplate::new("a\n{% for %}", Vec::new()) {
        Err(TemplateError::Syntax { line, .. }) => assert_eq!(line, 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn failure_names_the_line() {
    match render("a\nb {{ messages.x.y }}") {
        Err(TemplateError::Failed { line, .. }) => assert_eq!(line, 2),
        other => panic!("{other:?}"),
    }
}

#[test]
fn hostile_templates_are_bounded() {
    let deep = format!("{}1{}", "(".repeat(50_000), ")".repeat(50_000));
    let nested = "{% if true %}".repeat(50_000);
    for source in [
        "{% for a in range(1000000000) %}{% endfor %}",
        "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
        "{{ 'x' * 100000000000 }}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}{{ ns.x }}",
        "{{ [1] * 100000000000 }}",
        "{{ ([1] * 100000000000) | tojson }}",
        "{{ ([1] * 100000000000) | join }}",
        "{{ range(99999) | list * 99999 }}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = ns.x.replace('x', 'xx') %}{% endfor %}",
        "{% set ns = namespace(x='x') %}{% for a in range(60) %}{% set ns.x = (ns.x ~ ',').join(['', '', '']) %}{% endfor %}",
        "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
        "{% for a in range(99999) %}{% for b in range(9999) %}xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx{% endfor %}{% endfor %}",
        "{{ '%999999999999d' | format(3) }}",
        "{{ 'x' | center(99999999999) }}",
        "{{ 'x' | indent(99999999999) }}",
        "{% include 'chat' %}",
        &format!("{{{{ {deep} }}}}"),
        &nested,
    ] {
        let shown: String = source.chars().take(60).collect();
        assert!(render(source).is_err(), "accepted: {shown}");
    }
}

#[test]
fn deeply_nested_values_do_no_harm() {
    let build = |item: &str| {
        let inner = format!("{{% set ns.x = {item} %}}");
        let outer = format!(
            "{{% for a in range(99999) %}}{{% for b in range(4) %}}{inner}{{% endfor %}}{{% endfor %}}"
        );
        format!("{{% set ns = namespace(x=[]) %}}{outer}")
    };
    for (item, end) in
        [("[ns.x]", ""), ("[ns.x]", "{{ ns.x }}"), ("{'k': ns.x}", "{{ ns.x ~ '' }}")]
    {
        // Refused or rendered: either way this process lives on.
        let _ = render(&format!("{}{end}", build(item)));
    }
    assert!(render(&format!("{}{{{{ ns.x | tojson }}}}", build("[ns.x]"))).is_err());
}

#[test]
#[ignore = "minijinja 3.1.0 copies concatenated lists without charging fuel: this fills the memory"]
fn doubled_list_is_bounded() {
    let source = "{% set ns = namespace(x=[1]) %}{% for a in range(60) %}{% set ns.x = ns.x + ns.x %}{% endfor %}";
    assert!(render(source).is_err());
}

#[test]
fn now_is_formatted_as_python_does() {
    let now = SystemTime::UNIX_EPOCH + Duration::from_hours(478_332); // 26 July 2024, noon in Greenwich
    let conversation = Conversation { now: Some(now), ..Conversation::default() };
    let text = template("{{ strftime_now('%d %b %Y|%B|%Y-%m-%d|%y|%j') }}")
        .render(&conversation)
        .expect("renders");
    assert_eq!(text, "26 Jul 2024|July|2024-07-26|24|208");
}

#[test]
fn json_is_pythons() {
    let messages = [json!({"b": [1, 2.0, null, true, {}, []], "a": "<é \"'\u{1}\n"})];
    let conversation = Conversation { messages: &messages, ..Conversation::default() };
    for (filter, expected) in [
        ("tojson", r#"{"b": [1, 2.0, null, true, {}, []], "a": "<é \"'\u0001\n"}"#),
        ("tojson(sort_keys=true)", r#"{"a": "<é \"'\u0001\n", "b": [1, 2.0, null, true, {}, []]}"#),
        ("tojson(separators=[',', ':'])", r#"{"b":[1,2.0,null,true,{},[]],"a":"<é \"'\u0001\n"}"#),
        (
            "tojson(ensure_ascii=true)",
            r#"{"b": [1, 2.0, null, true, {}, []], "a": "<\u00e9 \"'\u0001\n"}"#,
        ),
    ] {
        let text = template(&format!("{{{{ messages[0] | {filter} }}}}"))
            .render(&conversation)
            .expect("renders");
        assert_eq!(text, expected);
    }
}

#[test]
fn template_is_found_in_a_folder() {
    let folder = TestFolder::new();
    assert!(ChatTemplate::from_folder(folder.path()).expect("readable").is_none());
    let write = |config: &Json| folder.file("tokenizer_config.json", config.to_string());
    let text = || {
        let template = ChatTemplate::from_folder(folder.path()).expect("readable").expect("there");
        template.render(&Conversation::default()).expect("renders")
    };
    write(&json!({"bos_token": {"content": "<s>"}, "chat_template": "{{ bos_token }}A"}));
    assert_eq!(text(), "<s>A");
    write(
        &json!({"chat_template": [{"name": "tool_use", "template": "T"}, {"name": "default", "template": "D"}]}),
    );
    assert_eq!(text(), "D");
    write(&json!({"chat_template": 3}));
    assert!(ChatTemplate::from_folder(folder.path()).is_err());
    write(&json!({"eos_token": "</s>"}));
    folder.file("chat_template.jinja", "J{{ eos_token }}");
    assert_eq!(text(), "J</s>");
}

#[test]
fn template_is_found_in_gguf() {
    let folder = TestFolder::new();
    let base = Builder::tiny_llama();
    assert!(
        ChatTemplate::from_gguf(&Gguf::open(&base.write(folder.path())).expect("valid"))
            .expect("fine")
            .is_none()
    );
    let chat = Builder::tiny_llama().string("tokenizer.chat_template", "{{ eos_token }}!");
    let template = ChatTemplate::from_gguf(&Gguf::open(&chat.write(folder.path())).expect("valid"));
    let text =
        template.expect("valid").expect("there").render(&Conversation::default()).expect("renders");
    assert_eq!(text, "ab!");
}
