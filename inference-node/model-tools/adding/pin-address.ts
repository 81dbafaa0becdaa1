import { FILE_NAME_FORM } from '@matting/serving/models/manifest.ts';
import type { AddressClient } from '../weights/address-client.ts';

/** huggingface.co, its mirrors and modelscope.cn: <owner>/<repository>/resolve/<revision>/<path>. */
const RESOLVED = /^((?:\/[^/]+)+\/resolve\/)([^/]+)(\/.+)$/;
const COMMIT = /^[0-9a-f]{40}$/;
const MOVING = [
  /^https:\/\/raw\.githubusercontent\.com\/[^/]+\/[^/]+\/(?![0-9a-f]{40}\/)/,
  /^https:\/\/github\.com\/[^/]+\/[^/]+\/(raw|blob)\/(?![0-9a-f]{40}\/)/,
  /^https:\/\/github\.com\/[^/]+\/[^/]+\/releases\/latest\//,
];

interface PinnedAddress {
  readonly url: string;
  readonly revision?: string;
  /** The same address may give another file tomorrow. */
  readonly moves: boolean;
}

/**
 * Finds the commit of a branch or tag of the Hub, in X-Repo-Commit of the answer to a HEAD, or of
 * its redirect to the Hub's storage or a renamed repository.
 * @throws ModelError; InterruptedError
 */
export async function pinAddress(
  client: AddressClient,
  address: string,
  signal: AbortSignal,
): Promise<PinnedAddress> {
  const url = new URL(address);
  const [, before, revision, path] = RESOLVED.exec(url.pathname) ?? [];
  if (revision === undefined) {
    return { url: address, moves: MOVING.some(form => form.test(address)) };
  }
  if (COMMIT.test(revision)) return { url: address, revision, moves: false };
  const commit = await client.findCommit(address, signal);
  if (commit === undefined) return { url: address, moves: true };
  url.pathname = `${before}${commit}${path}`;
  return { url: url.href, revision: commit, moves: false };
}

/** The file's own name if the cache accepts it. */
export function fileNameOf(path: string): string {
  const name = decodeName(path.split('/').at(-1) ?? '');
  return FILE_NAME_FORM.test(name) && name.endsWith('.onnx') ? name : 'model.onnx';
}

/** Common file names on model hosts, which do not name a model. */
const SAYS_NOTHING =
  /^(model|onnx|network|weights)([_-]?(fp16|fp32|uint8|int8|quantized|q4f?16?))?$/;
const NAME_MAX = 64;

export function modelNameFrom(path: string): string | undefined {
  const parts = path.split('/').map(decodeName);
  const file = (parts.at(-1) ?? '').replace(/\.onnx$/i, '');
  const at = parts.indexOf('resolve');
  const repository = at > 0 ? parts[at - 1] : undefined;
  const form = SAYS_NOTHING.exec(file.toLowerCase());
  if (form === null) return slug(file);
  return repository === undefined ? undefined : slug(`${repository} ${form[3] ?? ''}`);
}

function slug(text: string): string | undefined {
  const name = text
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-+|-+$/g, '');
  return name.slice(0, NAME_MAX).replace(/-+$/, '') || undefined;
}

function decodeName(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}
