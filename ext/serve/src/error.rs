//! Errors as OpenAI's JSON objects. A message names the field that is wrong, and what would be right.

use axum::Json;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};

/// Why a request was refused or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApiError {
    /// The HTTP status.
    pub status: StatusCode,
    /// A sentence for the user.
    pub message: String,
    /// The field of the request that is wrong, if it is one field.
    pub param: Option<String>,
    /// A stable word for programs.
    pub code: Option<&'static str>,
}

impl ApiError {
    /// A request that is wrong.
    pub fn bad(message: impl Into<String>) -> ApiError {
        ApiError {
            status: StatusCode::BAD_REQUEST,
            message: message.into(),
            param: None,
            code: None,
        }
    }

    /// A request with a wrong field.
    pub fn field(name: &str, message: impl Into<String>) -> ApiError {
        ApiError { param: Some(name.to_owned()), ..ApiError::bad(message) }
    }

    /// An error with another status.
    pub fn with(status: StatusCode, code: &'static str, message: impl Into<String>) -> ApiError {
        ApiError { status, code: Some(code), ..ApiError::bad(message) }
    }

    /// The object that clients read.
    pub fn body(&self) -> Value {
        let kind = match self.status {
            StatusCode::UNAUTHORIZED => "authentication_error",
            StatusCode::FORBIDDEN => "permission_error",
            StatusCode::TOO_MANY_REQUESTS => "rate_limit_error",
            status if status.is_server_error() => "server_error",
            _ => "invalid_request_error",
        };
        let ApiError { message, param, code, .. } = self;
        let (message, param) = (short(message), param.as_deref().map(short));
        json!({ "error": { "message": message, "type": kind, "param": param, "code": code } })
    }
}

/// Maximum characters of each half of a message. It may quote the request and end with advice, so the middle is cut.
const HALF: usize = 500;

fn short(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    match (characters.first_chunk::<HALF>(), characters.last_chunk::<HALF>()) {
        (Some(first), Some(last)) if characters.len() > 2 * HALF => {
            let half = |half: &[char]| half.iter().collect::<String>();
            format!("{}…{}", half(first), half(last))
        }
        _ => text.to_owned(),
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let mut response = (self.status, Json(self.body())).into_response();
        let waits = [StatusCode::TOO_MANY_REQUESTS, StatusCode::SERVICE_UNAVAILABLE];
        if waits.contains(&self.status) {
            response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
        }
        if self.status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
