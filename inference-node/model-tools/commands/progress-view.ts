/** Shows a person, a log or a program how far fetching and preparing a model is. */
import type { Writable } from 'node:stream';
import type { PrepareProgress } from '@matting/serving/prepared/load-prepared.ts';
import type { FetchProgress } from '../weights/fetch.ts';
import { BarView } from './bar-view.ts';
import { PlainView } from './plain-view.ts';

export interface ProgressView {
  fetching(model: string, progress: FetchProgress): void;
  preparing(model: string, progress: PrepareProgress): void;
  stop(): void;
}

export function createProgressView(out: Writable & { readonly isTTY?: boolean }): ProgressView {
  return out.isTTY === true ? new BarView(out) : new PlainView(out);
}
