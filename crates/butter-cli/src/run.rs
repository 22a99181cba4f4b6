//! `butter run`: answer a prompt, or chat.

use std::io::{self, IsTerminal, Read, Write};

use butter::template::{ChatTemplate, Conversation};
use butter::{FinishReason, Generator, Model, Prompt, Stats};
use clap::Args;
use serde_json::{Value, json};

use crate::chat;
use crate::model::ModelArgs;
use crate::output::{Failure, Terminal, report};
use crate::sampling::SamplingArgs;

/// The longest text that is read from standard input.
const LONGEST_INPUT: u64 = 64 << 20;

const EXAMPLES: &str = "\
Examples:
  butter run smollm2 \"Why is the sky blue?\"
  butter run smollm2                                    chat; /help lists what you can type
  butter run smollm2 < question.txt                     the prompt is what is piped in
  git diff | butter run smollm2 \"Sum this change up:\"   both, in this order
  butter run model.gguf --temperature 0 \"2 + 2 =\"       the most likely answer, always the same
  butter run model.gguf --raw -n 64 \"Once upon a time\"  continue a text, without a chat template
  butter run smollm2 --system \"You are a pirate.\" Hello
  butter run smollm2 --stats Hello 2> stats.txt         how fast it was

Ctrl-C ends the answer; in a chat the next question can follow. A second Ctrl-C ends the program.";

/// Arguments of `butter run`.
#[derive(Args, Debug)]
#[command(after_help = EXAMPLES)]
pub(crate) struct RunArgs {
    #[command(flatten)]
    model: ModelArgs,

    /// What to answer or continue; several words are joined by spaces
    #[arg(value_name = "PROMPT")]
    prompt: Vec<String>,

    /// Instructions that the model gets before the conversation
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,

    /// Continue the prompt as it is, without the model's chat template
    #[arg(long)]
    raw: bool,

    /// Tokens that prompt and answer may have together [default: what the model was made for]
    #[arg(long, value_name = "N")]
    ctx: Option<usize>,

    /// Show how fast it was, on standard error
    #[arg(long)]
    stats: bool,

    #[command(flatten)]
    sampling: SamplingArgs,
}

pub(crate) fn run(args: &RunArgs, terminal: &Terminal) -> Result<(), Failure> {
    // Wrong arguments are told before anything is fetched or loaded.
    args.sampling.options()?;
    let Some(text) = prompt(args)? else {
        if args.raw {
            return Err(Failure::usage("--raw needs a prompt").with_help(
                "give one: `butter run MODEL --raw \"Once upon a time\"`, or leave out --raw to chat",
            ));
        }
        let model = args.model.load(terminal, args.ctx)?;
        return chat::run(&model, args.system.clone(), &args.sampling, args.stats, terminal);
    };
    let model = args.model.load(terminal, args.ctx)?;
    let prompt = match (args.raw, model.chat_template()) {
        (true, _) => Prompt::Text(text),
        (false, Some(template)) => {
            let mut messages = system_message(args.system.as_deref());
            messages.push(json!({"role": "user", "content": text}));
            encode_chat(&model, template, &messages)?
        }
        (false, None) if args.system.is_some() => return Err(no_template_for("--system")),
        (false, None) => {
            terminal.note("this model has no chat template: it continues the text (--raw)");
            Prompt::Text(text)
        }
    };
    let answer =
        answer(args.stats, &args.sampling, terminal, |options| model.generate(prompt, options))?;
    if answer.is_cancelled { Err(Failure::Interrupted) } else { Ok(()) }
}

/// The prompt from the arguments, followed by what is piped in; `None` asks for a chat.
fn prompt(args: &RunArgs) -> Result<Option<String>, Failure> {
    let given = (!args.prompt.is_empty()).then(|| args.prompt.join(" "));
    let empty = |why| {
        Failure::usage(format!("the prompt is empty{why}"))
            .with_help("give a prompt: `butter run MODEL \"Why is the sky blue?\"`")
    };
    if io::stdin().is_terminal() {
        return match given {
            Some(given) if given.trim().is_empty() => Err(empty("")),
            given => Ok(given),
        };
    }
    let mut piped = read_input()?;
    if !args.raw {
        piped.truncate(piped.trim_end_matches(['\n', '\r']).len());
    }
    match given.filter(|given| !given.trim().is_empty()) {
        Some(given) if piped.is_empty() => Ok(Some(given)),
        Some(given) => Ok(Some(format!("{given}\n\n{piped}"))),
        None if piped.trim().is_empty() => Err(empty(": standard input has no text")),
        None => Ok(Some(piped)),
    }
}

fn read_input() -> Result<String, Failure> {
    let unreadable = |error: io::Error| match error.kind() {
        io::ErrorKind::InvalidData => Failure::error("standard input is not UTF-8 text")
            .with_help("convert it: `iconv -t UTF-8 FILE | butter run MODEL`"),
        _ => Failure::error(format!("cannot read standard input: {error}")),
    };
    let mut text = String::new();
    io::stdin().lock().take(LONGEST_INPUT + 1).read_to_string(&mut text).map_err(unreadable)?;
    if text.len() as u64 > LONGEST_INPUT {
        return Err(Failure::error("standard input has more than 64 MiB of text")
            .with_help("no model has a context for that: pipe in a part of it"));
    }
    Ok(text)
}

/// A conversation that starts with `system`, if there is one.
pub(crate) fn system_message(system: Option<&str>) -> Vec<Value> {
    system.map(|text| json!({"role": "system", "content": text})).into_iter().collect()
}

/// The prompt of a conversation.
pub(crate) fn encode_chat(
    model: &Model,
    template: &ChatTemplate,
    messages: &[Value],
) -> Result<Prompt, Failure> {
    let conversation =
        Conversation { messages, add_generation_prompt: true, ..Conversation::default() };
    let text = template.render(&conversation)?;
    Ok(Prompt::Tokens(model.tokenizer()?.encode(&text, false)?))
}

pub(crate) fn no_template_for(what: &str) -> Failure {
    Failure::error(format!("this model has no chat template, which {what} needs")).with_help(
        "choose a model that was made for chat (\"instruct\"), or continue a text with --raw",
    )
}

/// An answer that was written to standard output.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) text: String,
    pub(crate) is_cancelled: bool,
}

/// Writes an answer as it is generated. Ctrl-C ends it.
pub(crate) fn answer(
    with_stats: bool,
    sampling: &SamplingArgs,
    terminal: &Terminal,
    start: impl FnOnce(butter::GenerateOptions) -> Result<Generator, butter::Error>,
) -> Result<Answer, Failure> {
    let options = sampling.options()?;
    let cancel = options.cancel.clone();
    let _watch = terminal.interrupt.instead(move || cancel.cancel());
    let mut generator = start(options)?;
    let seed = generator.seed();
    let mut out = io::stdout().lock();
    let (mut text, mut finish) = (String::new(), None);
    for chunk in &mut generator {
        let chunk = chunk?;
        out.write_all(chunk.text.as_bytes())?;
        out.flush()?;
        text.push_str(&chunk.text);
        finish = chunk.finish_reason;
    }
    if !text.ends_with('\n') {
        writeln!(out)?;
    }
    if finish == Some(FinishReason::ContextFull) {
        terminal.warn(
            "the context is full, so the answer is cut off; give a larger --ctx, or ask for less",
        );
    }
    if with_stats {
        report(stats(&generator.stats(), sampling.is_random().then_some(seed)));
    }
    Ok(Answer { text, is_cancelled: finish == Some(FinishReason::Cancelled) })
}

/// `prompt 31 tokens, 250.1 tokens/s · first token after 0.12 s · answer 48 tokens, 60.2 tokens/s`.
fn stats(stats: &Stats, seed: Option<u64>) -> String {
    let cached = match stats.cached_tokens {
        0 => String::new(),
        cached => format!(" ({cached} cached)"),
    };
    let seed = seed.map_or(String::new(), |seed| format!(" · seed {seed}"));
    format!(
        "prompt {} tokens{cached}, {:.1} tokens/s · first token after {:.3} s · answer {} tokens, {:.1} tokens/s{seed}",
        stats.prompt_tokens,
        stats.prefill_rate(),
        stats.prefill_time.as_secs_f64(),
        stats.generated_tokens,
        stats.decode_rate(),
    )
}
