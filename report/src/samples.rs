//! Texts that a model wrote, from the output of `canonc generate --json`, for the page.

use serde::{Deserialize, Serialize};

/// A text that a model wrote.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Sample {
    /// The model, as it was named on the command line, and how it was sampled.
    pub title: String,
    /// The prompt; empty for one of tokens.
    pub prompt: String,
    /// What follows it: text, or token ids.
    pub text: String,
}

/// The members that are used.
#[derive(Deserialize)]
struct GenerateDocument {
    schema: String,
    model: String,
    prompt: Option<String>,
    temperature: f64,
    seed: u64,
    tokens: Vec<i64>,
    text: Option<String>,
}

const SCHEMA: &str = "canonc.generate.v1";

impl Sample {
    /// Every sample of a file, which may have several documents one after another.
    pub fn parse(text: &str) -> Result<Vec<Sample>, String> {
        let documents = serde_json::Deserializer::from_str(text).into_iter::<GenerateDocument>();
        let samples: Vec<Sample> = documents
            .map(|document| Sample::new(document.map_err(|error| error.to_string())?))
            .collect::<Result<_, _>>()?;
        if samples.is_empty() { Err("it is empty".to_owned()) } else { Ok(samples) }
    }

    fn new(document: GenerateDocument) -> Result<Sample, String> {
        let GenerateDocument { schema, model, prompt, temperature, seed, tokens, text } = document;
        if schema != SCHEMA {
            return Err(format!("its schema is `{schema}`, not `{SCHEMA}`"));
        }
        let sampled = match temperature {
            0.0 => "the most likely tokens".to_owned(),
            _ => format!("temperature {temperature}, seed {seed}"),
        };
        let ids = || tokens.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
        Ok(Sample {
            title: format!("{model}: {sampled}"),
            prompt: prompt.unwrap_or_default(),
            text: text.unwrap_or_else(ids),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_are_read_one_after_another_and_others_refused() {
        let one = r#"{"schema": "canonc.generate.v1", "model": "runs/a", "prompt": "Once", "temperature": 0.5,
            "seed": 7, "tokens": [1, 2], "text": " upon", "state_bytes": 4, "kernels": []}"#;
        let two =
            one.replace("\"Once\"", "null").replace("\" upon\"", "null").replace("0.5", "0.0");
        let read = Sample::parse(&format!("{one}\n{two}")).unwrap();
        assert_eq!(read[0].title, "runs/a: temperature 0.5, seed 7");
        assert_eq!((read[0].prompt.as_str(), read[0].text.as_str()), ("Once", " upon"));
        assert_eq!(read[1].title, "runs/a: the most likely tokens");
        assert_eq!((read[1].prompt.as_str(), read[1].text.as_str()), ("", "1 2"));
        let other = one.replace("generate.v1", "eval.v1");
        assert!(Sample::parse(&other).unwrap_err().contains("its schema is `canonc.eval.v1`"));
        assert_eq!(Sample::parse(" ").unwrap_err(), "it is empty");
        assert!(Sample::parse("Once upon a time").is_err());
    }
}
