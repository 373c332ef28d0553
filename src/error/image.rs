//! Why an image of a conversation is not seen.

/// An image that cannot be read, or that the model does not see (exit code 2).
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)] // the message of a variant says what its fields are
pub enum ImageError {
    /// The model was loaded without what makes rows of images.
    #[error(
        "the messages have {images} images, and the model was loaded without a vision tower; ask for it by ModelBuilder::vision, \
         where the files bring one that is known, or leave the images out"
    )]
    NoTower { images: usize },
    /// This build decodes no images.
    #[error("the messages have {images} images, and this build reads none; build with --features images")]
    NotBuilt { images: usize },
    /// An image of the messages, by its number from 1, is not read, or has a size that the model does not take.
    #[cfg(feature = "images")]
    #[error("image {number} ({given}): {source}")]
    Picture { number: usize, given: String, source: std::sync::Arc<model_factory_images::Error> },
    /// The tokenizer has no token of an id that stands for images.
    #[error("the tokenizer has no token {token}, which stands for images; give the model's own tokenizer")]
    NoToken { token: String },
    /// The prompt has not as many places for rows of images as the images have rows.
    #[error(
        "the prompt has {found} places for the rows of images, expected {expected}: the messages spell the token that holds them; \
         do not trust special tokens there"
    )]
    Places { found: usize, expected: usize },
    /// An image of more tokens than memory is planned for.
    #[error(
        "image {number} is {tokens} tokens, and memory is planned for images of up to {most}; make the image smaller, or load the model \
         with a context_length of {tokens} or more, for all of which memory is planned then"
    )]
    Planned { number: usize, tokens: usize, most: usize },
    /// A file changed while its image was prepared.
    #[error("image {number} has {found} rows, and a moment before it had {expected}: its file changed; try again")]
    Changed { number: usize, found: usize, expected: usize },
}
