//! Arm machines without a GPU that is computed on here.

use super::{NEON, NEON_8_0, NEON_BF16, Profile, cpu};

/// A row for each machine, with the sizes of memory that it is sold with: a profile each, as `NAME-16gb`.
macro_rules! machines {
    ($($name:literal $title:literal $level:ident $fast:literal + $slow:literal $gb_s:literal [$($gib:literal)*])*) => {
        pub(super) const MACHINES: &[Profile] = &[$($(
            Profile {
                slow_threads: $slow,
                ..cpu(concat!($name, "-", $gib, "gb"), $title, $level, $fast + $slow, $gib, Some($gb_s))
            },
        )*)*];
    };
}

// Cores: fast ones + those of less than half their speed. Apple: cores, memory and GB/s by its technical specifications (of M1 by
// its memory, LPDDR4X-4266 of 128 bits). AWS: cores and memory by its list of instances, GB/s by channels x data rate x 8 bytes of
// the whole chip. Ampere, Qualcomm and Raspberry Pi: by their product briefs, GB/s as width x data rate. NVIDIA: by its data sheet.
// M5 Pro and Max, of which six cores are faster than twelve: by the press release; the twelve are no efficiency cores.
#[rustfmt::skip]
machines! {
    // name              title                                       level     fast + slow   GB/s  GiB
    "apple-m1"           "Apple M1"                                  NEON         4 + 4      68.3  [8 16]
    "apple-m1-pro"       "Apple M1 Pro"                              NEON         8 + 2     200.0  [16 32]
    "apple-m1-max"       "Apple M1 Max"                              NEON         8 + 2     400.0  [32 64]
    "apple-m1-ultra"     "Apple M1 Ultra"                            NEON        16 + 4     800.0  [64 128]
    "apple-m2"           "Apple M2"                                  NEON_BF16    4 + 4     100.0  [8 16 24]
    "apple-m2-pro"       "Apple M2 Pro"                              NEON_BF16    8 + 4     200.0  [16 32]
    "apple-m2-max"       "Apple M2 Max"                              NEON_BF16    8 + 4     400.0  [32 64 96]
    "apple-m2-ultra"     "Apple M2 Ultra"                            NEON_BF16   16 + 8     800.0  [64 128 192]
    "apple-m3"           "Apple M3"                                  NEON_BF16    4 + 4     100.0  [8 16 24]
    "apple-m3-pro"       "Apple M3 Pro"                              NEON_BF16    6 + 6     150.0  [18 36]
    "apple-m3-max"       "Apple M3 Max of 16 cores"                  NEON_BF16   12 + 4     400.0  [48 64 128]
    "apple-m3-ultra"     "Apple M3 Ultra of 32 cores"                NEON_BF16   24 + 8     819.0  [96 256 512]
    "apple-m4"           "Apple M4 of 10 cores"                      NEON_BF16    4 + 6     120.0  [16 24 32]
    "apple-m4-pro"       "Apple M4 Pro of 14 cores"                  NEON_BF16   10 + 4     273.0  [24 48 64]
    "apple-m4-max"       "Apple M4 Max of 16 cores"                  NEON_BF16   12 + 4     546.0  [48 64 128]
    "apple-m5"           "Apple M5"                                  NEON_BF16    4 + 6     153.0  [16 24 32]
    "apple-m5-pro"       "Apple M5 Pro of 18 cores"                  NEON_BF16   18 + 0     307.0  [24 48 64]
    "apple-m5-max"       "Apple M5 Max of 18 cores"                  NEON_BF16   18 + 0     614.0  [48 64 128]
    "graviton2"          "AWS Graviton 2 (m6g.16xlarge)"             NEON        64 + 0     204.8  [256]
    "graviton3"          "AWS Graviton 3 (m7g.16xlarge)"             NEON_BF16   64 + 0     307.2  [256]
    "graviton4"          "AWS Graviton 4 (m8g.24xlarge)"             NEON_BF16   96 + 0     537.6  [384]
    "altra"              "Ampere Altra Q80, DDR4-3200"               NEON        80 + 0     204.8  [256]
    "grace"              "NVIDIA Grace"                              NEON_BF16   72 + 0     512.0  [240]
    "snapdragon-x-elite" "Qualcomm Snapdragon X Elite of 12 cores"   NEON_BF16   12 + 0     135.0  [16 32 64]
    "snapdragon-x-plus"  "Qualcomm Snapdragon X Plus of 10 cores"    NEON_BF16   10 + 0     135.0  [16 32]
    "raspberry-pi-4"     "Raspberry Pi 4, LPDDR4-3200"               NEON_8_0     4 + 0      12.8  [2 4 8]
    "raspberry-pi-5"     "Raspberry Pi 5, LPDDR4X-4267"              NEON         4 + 0      17.1  [2 4 16]
}
