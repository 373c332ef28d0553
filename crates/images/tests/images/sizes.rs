//! What images of many sizes become, without one.

use super::{expected, numbers, processor};
use model_factory_images::Size;

#[test]
fn sizes_are_those_of_transformers() {
    let expected = expected();
    let (mut compared, mut refused) = (0, 0);
    for (name, cases) in expected["geometry"].as_object().unwrap() {
        let processor = processor(&format!("{name}-published"));
        for case in cases.as_array().unwrap() {
            let [width, height] = numbers(&case[0])[..] else { panic!("{case}") };
            let found = processor.geometry(Size::new(width as u32, height as u32));
            let Some(said) = case[1].as_array() else {
                found.expect_err(&format!("{name}: {width} by {height}"));
                refused += 1;
                continue;
            };
            let found = found.unwrap_or_else(|error| panic!("{name}: {width} by {height}: {error}"));
            let sizes: Vec<Vec<u64>> =
                found.parts.iter().map(|part| vec![part.size.width.into(), part.size.height.into()]).collect();
            let parts: Vec<Vec<u64>> = said[0].as_array().unwrap().iter().map(numbers).collect();
            assert_eq!(sizes, parts, "{name}: {width} by {height}");
            assert_eq!(found.tokens(), said[1].as_u64(), "{name}: {width} by {height}");
            compared += 1;
        }
    }
    println!("{compared} sizes, {refused} refused");
    assert!(compared >= 250 && refused >= 3, "{compared} {refused}");
}
