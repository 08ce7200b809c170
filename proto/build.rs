//! Compiles the protos without protoc.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let files = ["proto/levada/v1/client.proto", "proto/levada/v1/cluster.proto", "proto/levada/v1/data.proto"];
    println!("cargo:rerun-if-changed=proto");
    let mut descriptors = protox::compile(files, ["proto"])?;
    let path = std::path::PathBuf::from(std::env::var("OUT_DIR")?).join("levada.bin");
    std::fs::write(path, prost::Message::encode_to_vec(&descriptors))?;
    // The data plane's service is described for reflection; its code, which copies nothing, is in `src/frame.rs`.
    let data = descriptors.file.iter_mut().filter(|file| file.name() == "levada/v1/data.proto");
    data.for_each(|file| file.service.clear());
    tonic_prost_build::configure().bytes(".").compile_fds(descriptors)?;
    Ok(())
}
