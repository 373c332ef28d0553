//! Images that were seen before are not computed again, and a request that waits for the image of another one can be cancelled.
#![allow(clippy::expect_used, clippy::unwrap_used)] // a test that cannot go on says why

use crate::common::{self, archives};
use crate::pictures::{chats, folder, input, text};

use model_factory::images::Picture;
use model_factory::session::WeightsDigest;
use model_factory::{CancellationToken, Error, GenerateOptions, Message, Model};
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{fs, thread};

fn load(name: &str, threads: usize) -> Model {
    common::builder().vision(true).threads(threads).load(folder(name).join("f32")).expect("the model loads")
}

/// Images that the tower has computed, or parts of them.
fn passes(model: &Model) -> u64 {
    model.tower().expect("a tower").passes()
}

#[test]
fn an_image_of_a_conversation_is_computed_once() {
    for name in archives::names_in("vision") {
        let (folder, model) = (folder(&name), load(&name, 2));
        let chats: Vec<Vec<Message>> = chats(&folder).iter().map(|chat| chat.messages(&folder)).collect();
        assert_eq!(passes(&model), 0, "{name}: a model that was loaded");
        // The first conversation has one image, the second and the third have two more, the last one none that is new.
        let parts: Vec<u64> = [0, 1, 2, 3]
            .map(|chat| {
                let before = passes(&model);
                input(&model, &chats[chat]);
                passes(&model) - before
            })
            .into();
        assert!(parts[0] >= 1 && parts[1] >= 2 && parts[2..] == [0, 0], "{name}: {parts:?}");
        // Asked again in other words, in company, continued and restored.
        let before = passes(&model);
        for chat in &chats {
            text(&model, chat, 4);
            let more: Vec<Message> =
                chat.iter().cloned().chain([Message::new("assistant", "Yes."), Message::user("Why?")]).collect();
            text(&model, &more, 2);
        }
        thread::scope(|scope| {
            let answers: Vec<_> = chats.iter().map(|chat| scope.spawn(|| text(&model, chat, 2))).collect();
            answers.into_iter().for_each(|answer| drop(answer.join().unwrap()));
        });
        let mut session = model.session();
        session.next_logits_of(&input(&model, &chats[1])).unwrap();
        let saved = tempfile::tempdir().unwrap();
        let saved = saved.path().join("session");
        session.save(&saved, WeightsDigest::Full).unwrap();
        let mut restored = model.restore(&saved).unwrap();
        let options = GenerateOptions::default().temperature(0.0).max_tokens(2).ignore_stop(true);
        restored.generate(&chats[1], &options).unwrap().text().unwrap();
        assert_eq!(passes(&model), before, "{name}");
        // One pixel of another value is another image.
        let picture = |value: u8| Picture::from_rgb(40, 40, &[value; 4800]).unwrap();
        for value in [0, 128] {
            input(&model, &[Message::user("").image(picture(value))]);
            assert!(passes(&model) > before, "{name}");
        }
    }
}

/// `qwen3-vl/f32` with images of up to so many tokens.
fn with_tokens(tokens: usize) -> tempfile::TempDir {
    let (from, to) = (folder("qwen3-vl").join("f32"), tempfile::tempdir().unwrap());
    for entry in fs::read_dir(&from).unwrap().map(Result::unwrap) {
        fs::copy(entry.path(), to.path().join(entry.file_name())).unwrap();
    }
    for (name, section, key, value) in [
        ("config.json", "text_config", "max_position_embeddings", Value::from(2 * tokens)),
        (
            "processor_config.json",
            "image_processor",
            "size",
            json!({"shortest_edge": 1024, "longest_edge": tokens * 256}),
        ),
    ] {
        let mut object: Value = serde_json::from_slice(&fs::read(from.join(name)).unwrap()).unwrap();
        object[section][key] = value;
        fs::write(to.path().join(name), object.to_string()).unwrap();
    }
    to
}

#[test]
fn a_request_is_cancelled_while_the_image_of_another_is_computed() {
    let folder = with_tokens(4096);
    let model = common::builder().vision(true).threads(1).context_length(5000).load(folder.path()).expect("a model");
    let options = |cancel: &CancellationToken| GenerateOptions::default().max_tokens(1).cancel(cancel);
    let (first, ended) = (CancellationToken::new(), AtomicBool::new(false));
    thread::scope(|scope| {
        let of_first = scope.spawn(|| {
            // Some seconds of computing, all of whose turn is one image.
            let picture = Picture::from_rgb(1024, 1024, &vec![77; 3 * 1024 * 1024]).unwrap();
            let messages = [Message::user("").image(picture)];
            let result = model.chat(&messages, &options(&first)).err();
            ended.store(true, Ordering::SeqCst);
            result
        });
        // Until the first one has its turn, the others are answered.
        let begun = Instant::now();
        let waited = (0..=u8::MAX).find(|value| {
            let (token, picture) =
                (CancellationToken::new(), Picture::from_rgb(32, 32, &[*value; 3 * 32 * 32]).unwrap());
            let of_next = scope.spawn({
                let (token, model) = (token.clone(), &model);
                move || model.chat(&[Message::user("").image(picture)], &options(&token)).err()
            });
            thread::sleep(Duration::from_millis(50));
            token.cancel();
            matches!(of_next.join().unwrap(), Some(Error::Cancelled))
        });
        let before_its_end = !ended.load(Ordering::SeqCst);
        first.cancel();
        assert!(waited.is_some() && before_its_end, "{waited:?} after {:?}", begun.elapsed());
        assert!(matches!(of_first.join().unwrap(), Some(Error::Cancelled)));
    });
    // Turns go on.
    let picture = Picture::from_rgb(32, 32, &[1; 3 * 32 * 32]).unwrap();
    assert!(model.chat(&[Message::user("").image(picture)], &options(&CancellationToken::new())).is_ok());
}

#[test]
fn an_image_for_which_no_memory_is_planned_is_refused() {
    let folder = with_tokens(4096);
    let picture = |side: u32| Picture::from_rgb(side, side, &vec![9; 3 * (side * side) as usize]).unwrap();
    let asked = |side: u32| [Message::user("").image(picture(side))];
    let never = CancellationToken::new();
    let options = GenerateOptions::default().max_tokens(1).cancel(&never);
    // All of them where there is room, and less where half of what is beside the weights is less.
    let planned = |memory: Option<u64>| {
        let builder = common::builder().vision(true).threads(1);
        let builder = memory.into_iter().fold(builder, |builder, memory| builder.memory_limit(memory));
        builder.load(folder.path()).expect("the model loads")
    };
    let most = |model: &Model| model.report().plan.as_ref().expect("a plan").image_tokens;
    let large = planned(None);
    assert_eq!(most(&large), 8192, "the trained context");
    assert!(large.chat(&asked(512), &options).is_ok());
    let plan = large.report().plan.clone().expect("a plan");
    let small = planned(Some(plan.total - plan.kv_cache - plan.vision_memory / 2));
    let (tokens, plan) = (most(&small), small.report().plan.clone().expect("a plan"));
    assert!((512..4096).contains(&tokens), "{tokens}");
    let left = plan.available - (plan.total - plan.kv_cache - plan.vision_memory);
    assert!(plan.vision_memory <= left / 2 && plan.fits(), "{} of {left}", plan.vision_memory);
    let said = small.report().to_string();
    assert!(said.contains(&format!("memory is planned for images of up to {tokens} tokens")), "{said}");
    assert!(!large.report().to_string().contains("memory is planned for images"), "{}", large.report());
    let Err(error) = small.chat(&asked(1024), &options) else { panic!("4096 tokens are seen") };
    let says = format!("image 1 is 4096 tokens, and memory is planned for images of up to {tokens}");
    assert!(error.to_string().contains(&says) && error.code() == 2, "{error}");
    assert_eq!(passes(&small), 0);
    assert!(small.chat(&asked(256), &options).is_ok());
}
