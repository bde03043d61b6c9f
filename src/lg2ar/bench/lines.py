"""Records of measurements as lines to print."""

from __future__ import annotations

from lg2ar.bench.cells import Record


def line(told: Record) -> str:
    """A measurement in one line."""
    parts = [f"{told['bench']} {told['dataset']} {told['method']} on {told['device']}:"]
    if told.get("fit"):
        found = told["fit"]
        parts.append(
            f"{found['slope']:.3g} x + {found['intercept']:.3g}, R2 {found['r2']:.4f}, exponent "
            f"{found['exponent']:.3f}, at most {100 * found['largest_deviation']:.0f} % off"
        )
    elif told["bench"] == "seeds":
        parts.append(
            f"one {told['one_seconds']:.4f} s an epoch, {told['seeds']} together "
            f"{told['many_seconds']:.4f} s, ratio {told['ratio']:.2f}, losses differ by at most "
            f"{told['resting_difference']:.1e} with weights at rest, "
            f"{told['largest_difference']:.1e} in training"
        )
        if told.get("kinds"):
            parts[-1] += f"; {_profile(told)}"
    elif told["bench"] == "huge" and told["step_ms"] is None:
        parts.append(
            f"{told['seconds']:.1f} s, {told['cpu_seconds']:.1f} s of the processor; "
            f"{told['resident_gb']:.2f} GB at most, {told['own_gb']:.2f} GB without mapped files"
        )
    elif told["bench"] == "huge":
        parts.append(
            f"{told['step_ms']:.1f} ms a step, {told['step_cpu_ms']:.1f} ms of the processor, "
            f"{told['train_resident_gb']:.2f} GB at most, {told['train_own_gb']:.2f} GB without "
            f"mapped files; {told['part']} nodes embedded in {told['part_seconds']:.1f} s"
        )
    elif told["bench"] == "scaling":
        parts.append(
            f"{_epochs(told)}; {told['cpu_ms']:.2f} ms of processor a step, "
            f"{sum(told['exchanges'].values()):.0f} exchanges of "
            f"{sum(told['bytes'].values()):,.0f} bytes"
        )
    elif told["bench"] == "probe":
        accuracy = sum(told["accuracy"]) / len(told["accuracy"])
        gap = f", gap {told['gap']:.1e}" if "gap" in told else ""
        parts.append(
            f"{told['data']}; {told['solver']}; scaled: {told['scale']}; {told['seconds']:.2f} s; "
            f"accuracy {accuracy:.2f}{gap}"
        )
    else:
        parts.append(_epochs(told))
    return " ".join(parts)


def _profile(told: Record) -> str:
    what = "operations" if told["device"].startswith("cpu") else "kernels"
    shares = ", ".join(f"{kind} {ms:.2f}" for kind, ms in told["kinds"].items())
    return (
        f"{told['one_step_ms']:.2f} and {told['step_ms']:.2f} ms a step, {what} "
        f"{told['kernel_ms']:.2f} ms in {told['launches']:.0f} launches ({shares})"
    )


def _epochs(told: Record) -> str:
    seen = told["spread"]["seconds_per_epoch"]
    text = (
        f"{told['seconds_per_epoch']:.4f} s an epoch ({seen['min']:.4f} to {seen['max']:.4f}, "
        f"{seen['repetitions']} times), {told['step_ms']:.2f} ms a step"
    )
    if told["kernel_ms"] is not None:
        text += f", kernels {told['kernel_ms']:.2f} ms in {told['launches']:.0f} launches"
    if told["peak_gb"]:
        text += f", peak {told['peak_gb']:.2f} GB, {told['working_gb']:.2f} GB of it in a step"
    if told.get("run_seconds") and told.get("run_epochs"):
        text += f"; {told['run_epochs']} epochs in {told['run_seconds']:.1f} s in all"
    if told.get("embedded"):
        text += (
            f"; {told['embedded']} nodes embedded in {told['embed_seconds']:.1f} s with "
            f"{told['embed_gb']:.2f} GB"
        )
    return text
