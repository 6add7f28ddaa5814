"""A model folder is what was saved, whole or not there, in one file or many."""

import json
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from safetensors.torch import load_file

import clearhead
from clearhead.config import ModelConfig
from clearhead.errors import ConfigError, FolderError
from clearhead.interop import folders
from clearhead.interop.folders import whole_or_absent
from clearhead.interop.huggingface.exporting import export_model
from clearhead.interop.huggingface.importing import import_model
from clearhead.interop.model_folder import TokenIds, load_model, read_description, save_model
from tests.drawing import configs, random_model
from tests.interop.test_parity import our_config


@settings(max_examples=25)
@given(config=configs())
def test_any_model_comes_back_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, config: ModelConfig
):
    folder = tmp_path_factory.mktemp("models") / "model"
    model, ids = random_model(config, dtype=torch.float32), TokenIds(bos=None, eos=7)
    save_model(model, folder, ids=ids)
    loaded = load_model(folder)
    assert (loaded.config, read_description(folder).ids) == (config, ids)
    ours, theirs = model.state_dict(), loaded.state_dict()
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    buffers = dict(loaded.named_buffers())
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())


def test_a_folder_says_what_few_models_need_only_where_it_is_not_the_default(tmp_path: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    save_model(model, tmp_path / "usual")
    usual = json.loads((tmp_path / "usual" / "config.json").read_text())["tokens"]
    assert list(usual) == ["bos", "eos", "decoder_start", "target_start"]
    ids = TokenIds(prompt_start=3, strip=False)
    save_model(model, tmp_path / "other", ids=ids)
    assert read_description(tmp_path / "other").ids == ids
    path = tmp_path / "other" / "config.json"
    path.write_text(path.read_text().replace('"strip": false', '"strip": 0'))
    with pytest.raises(ConfigError, match="strip=0 must be bool"):
        read_description(tmp_path / "other")


def test_a_model_can_be_loaded_in_another_dtype(tmp_path: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    save_model(model, tmp_path / "ours")
    loaded = load_model(tmp_path / "ours", dtype=torch.bfloat16)
    assert torch.equal(loaded.tokens.weight, model.tokens.weight.bfloat16())


def test_the_front_door_saves_and_loads_by_the_name_of_a_folder(tmp_path: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    clearhead.save_model(model, f"{tmp_path}/ours")
    assert torch.equal(clearhead.load_model(f"{tmp_path}/ours").tokens.weight, model.tokens.weight)


def test_large_models_are_written_in_shards_with_an_index(tmp_path: Path):
    model = random_model(our_config("llama"), dtype=torch.float32)
    save_model(model, tmp_path / "ours", max_shard_bytes=10_000)
    shards = sorted((tmp_path / "ours").glob("*.safetensors"))
    assert len(shards) > 3
    assert shards[0].name == f"model-00001-of-{len(shards):05}.safetensors"
    index = json.loads((tmp_path / "ours" / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == sum(p.nbytes for p in model.parameters())
    for shard in shards:
        tensors = load_file(shard)
        assert sum(tensor.nbytes for tensor in tensors.values()) <= 10_000
        assert all(index["weight_map"][name] == shard.name for name in tensors)
    loaded = load_model(tmp_path / "ours")
    assert torch.equal(loaded.decoder.norm.weight, model.decoder.norm.weight)


def test_shards_go_out_and_come_in(tmp_path: Path):
    model = random_model(our_config("gpt2"), dtype=torch.float32)
    save_model(model, tmp_path / "ours", max_shard_bytes=10_000)
    export_model(tmp_path / "ours", tmp_path / "theirs", max_shard_bytes=9_000)
    assert len(list((tmp_path / "theirs").glob("*.safetensors"))) > 3
    import_model(tmp_path / "theirs", tmp_path / "back", max_shard_bytes=8_000)
    back = load_model(tmp_path / "back").state_dict()
    assert all(torch.equal(tensor, back[name]) for name, tensor in model.state_dict().items())


def test_an_interrupted_folder_is_not_there(tmp_path: Path):
    def write_half() -> None:
        with whole_or_absent(tmp_path / "out") as unfinished:
            (unfinished / "half").touch()
            assert not (tmp_path / "out").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_a_folder_can_be_read_by_others_when_it_is_whole(tmp_path: Path):
    with whole_or_absent(tmp_path / "new" / "out") as unfinished:
        (unfinished / "file").touch()
    assert (tmp_path / "new" / "out").stat().st_mode & 0o777 == 0o755
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["out"]


def test_a_folder_is_on_the_disk_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    synced: list[tuple[str, bool]] = []
    out = tmp_path / "out"
    monkeypatch.setattr(folders, "sync", lambda path: synced.append((path.name, out.exists())))
    with whole_or_absent(out) as unfinished:
        (unfinished / "file").touch()
    assert synced == [("file", False), (unfinished.name, False), (tmp_path.name, True)]


def test_an_id_outside_the_vocabulary_is_refused(tmp_path: Path):
    refused = r"tokens\.eos=53 is not a token of a vocabulary of 53"
    with pytest.raises(ConfigError, match=refused):
        save_model(random_model(our_config("gpt2")), tmp_path / "ours", ids=TokenIds(eos=53))
    save_model(random_model(our_config("gpt2")), tmp_path / "ours")
    config = tmp_path / "ours" / "config.json"
    config.write_text(config.read_text().replace('"eos": 2', '"eos": 53'))
    with pytest.raises(ConfigError, match=refused):
        load_model(tmp_path / "ours")


def test_a_folder_without_a_config_is_refused(tmp_path: Path):
    with pytest.raises(FolderError, match=r"has no config.json; is it a model folder\?"):
        load_model(tmp_path)


def test_what_a_model_folder_says_of_its_texts_survives_hugging_face(tmp_path: Path):
    ids = TokenIds(decoder_start=None, target_start=5, prompt_start=1, strip=False)
    save_model(random_model(our_config("llama")), tmp_path / "ours", ids=ids)
    export_model(tmp_path / "ours", tmp_path / "theirs", check=False)
    import_model(tmp_path / "theirs", tmp_path / "again")
    assert read_description(tmp_path / "again").ids == ids
    (tmp_path / "theirs" / "clearhead.json").write_text('{"target_start": 5000}')
    with pytest.raises(ConfigError, match=r"tokens\.target_start=5000 is not a token of a voc"):
        import_model(tmp_path / "theirs", tmp_path / "wrong")
    with pytest.raises(FolderError, match="is already a model folder"):
        import_model(tmp_path / "ours", tmp_path / "wrong")
