"""The catalog holds what is published, and refuses what it does not hold in a sentence."""

import pytest

from engine.cache.layer_groups import group_layers
from engine.errors import CommandRefused
from engine.executor import catalog


@pytest.mark.parametrize("key", catalog.MODELS)
def test_parameter_count_computed_from_shape_is_the_published_one(key):
    entry = catalog.MODELS[key]
    spec = entry.build()
    assert spec.num_params == pytest.approx(entry.published_params, rel=0.02)
    assert spec.num_matmul_params <= spec.num_params
    assert len(spec.layer_types) == spec.num_layers


def test_lm_head_counts_as_multiplied_and_the_embedding_table_does_not():
    tied, untied = catalog.find_model("llama-3.2-1b"), catalog.find_model("llama-3.1-8b")
    assert tied.num_params - tied.num_matmul_params < 1e6                       # only norms are left over
    table = untied.hidden_size * untied.vocab_size
    assert 0 < untied.num_params - untied.num_matmul_params - table < 1e6


@pytest.mark.parametrize(("key", "full", "sliding"), [("gemma-3-27b", 10, 52), ("gemma-2-9b", 21, 21), ("mistral-7b-v0.1", 0, 32)])
def test_hybrid_models_alternate_as_their_configs_say(key, full, sliding):
    kinds = catalog.find_model(key).layer_types
    assert (kinds.count("full_attention"), kinds.count("sliding_attention")) == (full, sliding)
    if full:
        assert kinds[0] == "sliding_attention"
    sizes = {len(group.layers) for group in group_layers(catalog.find_model(key))}
    assert len(sizes) == 1


@pytest.mark.parametrize(("key", "per_token"), [("llama-3.1-8b", 131072), ("llama-3.1-70b", 327680), ("llama-2-7b", 524288)])
def test_cache_bytes_per_token_are_the_known_ones(key, per_token):
    assert catalog.find_model(key).kv_bytes_per_token == per_token


def test_ridge_point_of_an_h100_is_about_295_flop_per_byte():
    assert catalog.find_gpu("H100").ridge == pytest.approx(295, abs=1)


@pytest.mark.parametrize(("text", "key", "count"), [
    ("simulated:h100", "h100-80gb", 1), ("simulated:H100:8", "h100-80gb", 8), ("a100-40gb", "a100-40gb", 1), ("simulated:t4:2", "t4", 2)])
def test_devices_are_found_by_the_names_people_write(text, key, count):
    hardware, number = catalog.parse_device(text)
    assert (hardware.key, number) == (key, count)


@pytest.mark.parametrize("text", ["simulated:", "simulated:h100:0", "simulated:h100:65", "simulated:h100:x", "tpu", "", "a b", "h100:8:8"])
def test_unknown_devices_are_refused_by_name(text):
    with pytest.raises(CommandRefused) as refusal:
        catalog.parse_device(text)
    assert str(refusal.value).endswith(".")


def test_unknown_model_is_refused_with_the_known_ones():
    with pytest.raises(CommandRefused, match=r"llama-3\.1-8b"):
        catalog.find_model("gpt-9")


def test_every_catalog_row_is_described_for_menus():
    described = catalog.describe_catalog()
    assert len(described["devices"]) == len(catalog.GPUS) and len(described["models"]) == len(catalog.MODELS)
    assert all(device["memory_gb"] > 0 and device["ridge"] > 0 for device in described["devices"])
