//! The reply of a model to a request.

use std::ops::ControlFlow;

use dsl::Problem;
use records::measure::{Likelihood, Model};

use crate::encode::{self, Codec, Piece, TokenError, Tokens};
use crate::generated::cut;
use crate::request::Request;
use crate::score::Reply;
use crate::suite::Task;

/// The reply to a request with inputs of at most `longest` tokens.
pub fn reply(
    model: &mut dyn Model,
    codec: &dyn Codec,
    longest: usize,
    task: &Task,
    request: &Request,
) -> Result<Reply, Problem> {
    let mut likelihood = |Piece { tokens, scored }| model.likelihood(tokens, scored);
    match encode::request(codec, task, request, longest).map_err(token_problem)? {
        Tokens::Continuations(pieces) => {
            let pair = |Likelihood { sum, greedy }| (sum, greedy);
            let replies = pieces.into_iter().map(|piece| likelihood(piece).map(pair));
            Ok(Reply::Likelihoods(replies.collect::<Result<_, _>>()?))
        }
        Tokens::Document(pieces) => {
            let mut total = 0.0;
            for piece in pieces {
                total += likelihood(piece)?.sum;
            }
            Ok(Reply::Likelihood(total))
        }
        Tokens::Prompt(prompt) => Ok(Reply::Text(write(model, codec, &prompt, task)?)),
    }
}

/// The likeliest text, up to a stop text of the task.
fn write(
    model: &mut dyn Model,
    codec: &dyn Codec,
    prompt: &[i64],
    task: &Task,
) -> Result<String, Problem> {
    let (mut tokens, mut text, mut ended) = (Vec::new(), String::new(), Ok(()));
    let mut each = |token: i64| {
        tokens.push(token);
        match codec.continuation(prompt, &tokens) {
            Ok(bytes) => text = String::from_utf8_lossy(&bytes).into_owned(),
            Err(fault) => ended = Err(Problem::input(fault, "use the tokenizer of the model")),
        }
        match ended.is_err() || task.until.iter().any(|stop| text.contains(stop.as_str())) {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    model.generate(prompt, task.max_tokens(), codec.stop(), &mut each)?;
    ended?;
    Ok(cut(&text, &task.until).to_owned())
}

/// The reply, if each of its numbers is finite.
pub fn finite(reply: Reply) -> Result<Reply, Problem> {
    let wrong = match &reply {
        Reply::Likelihoods(all) => all.iter().map(|(sum, _)| *sum).find(|sum| !sum.is_finite()),
        Reply::Likelihood(sum) => Some(*sum).filter(|sum| !sum.is_finite()),
        Reply::Text(_) => None,
        Reply::Diverged => Some(f64::NAN),
    };
    match wrong {
        None => Ok(reply),
        Some(sum) => Err(Problem::finding(
            format!("the model returned a log-likelihood of {sum}"),
            "check that the weights come from a run that did not diverge",
        )),
    }
}

/// An error about a question that has no tokens.
pub(crate) fn token_problem(TokenError { message, help }: TokenError) -> Problem {
    Problem::input(message, help)
}

/// An error about a question, with its file and line.
pub fn about_question(error: Problem, location: &str, task: &str) -> Problem {
    Problem { message: format!("{location}: task `{task}`: {}", error.message), ..error }
}
