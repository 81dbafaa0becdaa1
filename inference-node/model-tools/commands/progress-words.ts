/** Says in words how far preparing a model is. Pure. */
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';

const MEGABYTE = 1e6;

export function preparationLine(model: string, progress: PrepareProgress): string | undefined {
  if (progress.step === 'rewrite') {
    return `preparing ${model} at ${progress.width} x ${progress.height} px for this machine`;
  }
  if (progress.step === 'compare') {
    const found = `${progress.blocks} deformable convolutions of ${model}`;
    return `rewrote ${found}; comparing them with the original`;
  }
  if (progress.step === 'mended') return `${model} runs rewritten, though ${progress.reason}`;
  if (progress.step === 'keep') {
    return `${model} runs as published, slower and with more memory: ${progress.reason}`;
  }
  if (progress.step === 'discard') {
    return `preparing ${progress.path} again: ${progress.reason}`;
  }
  return undefined;
}

export function megabytes(bytes: number): string {
  return (bytes / MEGABYTE).toFixed(1);
}
