import { cpus } from 'node:os';
import type { Size } from '@matting/proto/contract/finishing.ts';
import type { PreparedModel } from '../../models/prepared-model.ts';
import { type Answering, drawCheckInput, type Matte } from '../../prepared/answer-check.ts';
import { digestInstructions } from '../../prepared/instruction-set.ts';
import { cInterfaceOf } from '../../providers/c-interface.ts';
import { runtimeVersion } from '../../providers/provider-files.ts';
import { type SessionSpec, saysMemoryRanOut, shortenNativeError } from '../engine-protocol.ts';
import { RUNTIME_RESERVED_BYTES } from '../pool/engine-bounds.ts';
import { spawnEngineChild } from '../pool/spawn-engine.ts';
import { runtimeTools } from './compare-runtimes.ts';
import { readCpuShare } from './engine-layout.ts';

/** A load and two runs: half a minute on the slowest useful machine. */
const ANSWER_TIMEOUT_MS = 120_000;

interface AnsweringOptions {
  /** The engines' environment, which also selects their GPU. */
  readonly childEnv: Readonly<Record<string, string>>;
  readonly threads?: number;
  readonly timeoutMs?: number;
  readonly memoryMaxBytes?: number;
}

export function answerOnce(
  options: AnsweringOptions,
): (model: PreparedModel, rgb?: Uint8Array) => ReturnType<Answering['answer']> {
  const { childEnv, threads, timeoutMs = ANSWER_TIMEOUT_MS, memoryMaxBytes } = options;
  const child = { childEnv, timeoutMs, memoryMaxBytes };
  return async (model, rgb = drawCheckInput(model)) => {
    const session = {
      intraOpThreads: threads ?? Math.max(1, Math.floor(await readCpuShare())),
      sharesCores: false,
      allowCpuNodes: true,
      keepsNoMemory: memoryMaxBytes !== undefined,
    };
    return await runOnce({ spec: { ...model, ...session }, rgb, ...child });
  };
}

export function createAnswering(options: AnsweringOptions): Answering {
  const runtimes = runtimeTools(options.childEnv);
  return { machine: describeMachine(), answer: answerOnce(options), runtimes };
}

export function describeMachine(): string {
  const processor = `${cpus()[0]?.model ?? 'unknown'} (${digestInstructions()})`;
  return `${processor}, ONNX Runtime ${runtimeVersion()}`;
}

export class MemoryBoundError extends Error {}

const OUTPUT_LENGTH_MAX = 64 * 1024;
const LAST_WORDS_LENGTH_MAX = 200;

interface RunOnceOptions {
  readonly spec: SessionSpec;
  readonly graph?: Uint8Array;
  readonly rgb: Uint8Array;
  readonly size?: Size | undefined;
  readonly childEnv: Readonly<Record<string, string>>;
  readonly timeoutMs: number;
  readonly memoryMaxBytes?: number | undefined;
  readonly killWaitMaxMs?: number;
}

/** Resolves once the process is gone. Rejects if it is stuck, too. */
export function runOnce(options: RunOnceOptions): Promise<Matte<Buffer>> {
  const { spec, graph, rgb, size, childEnv, timeoutMs, memoryMaxBytes, killWaitMaxMs } = options;
  const { promise, resolve, reject } = Promise.withResolvers<Matte<Buffer>>();
  let output = '';
  let matte: Matte<Buffer> | undefined;
  let failure: string | undefined;
  const timer = setTimeout(() => {
    failure = `no answer within ${timeoutMs} ms`;
    child.kill();
  }, timeoutMs);
  const child = spawnEngineChild(childEnv, {
    killWaitMaxMs,
    dataBytesMax: memoryMaxBytes && memoryMaxBytes + RUNTIME_RESERVED_BYTES,
    onOutput: text => {
      output = (output + text).slice(-OUTPUT_LENGTH_MAX);
    },
    onFrame: ({ head, parts }) => {
      if (head.kind === 'ready') {
        void child.send({ kind: 'run', id: 1, size }, [rgb]);
        return;
      }
      if (head.kind === 'started') return;
      const [alpha] = parts;
      if (head.kind !== 'done') failure = head.message;
      else if (alpha === undefined) failure = 'the engine answered without an alpha';
      else matte = { alpha, ...head.size };
      child.kill();
    },
    onStuck: () => {
      clearTimeout(timer);
      const stuck = `process ${child.pid} was killed and does not die`;
      reject(new Error(failure === undefined ? stuck : `${explain(failure, output)}; ${stuck}`));
    },
    // By now all of the process's standard error has arrived.
    onExit: exit => {
      clearTimeout(timer);
      if (matte !== undefined) return resolve(matte);
      const how = exit.signal ?? `code ${exit.code}`;
      failure ??= exit.error?.message ?? describeEnd(how, output);
      const message = explain(failure, output);
      // V8 prints the reason before its stack, so `message` may lack it.
      const ranOut = saysMemoryRanOut(message) || saysMemoryRanOut(output);
      const isBound = memoryMaxBytes !== undefined && ranOut;
      reject(isBound ? new MemoryBoundError(message) : new Error(message));
    },
  });
  const cInterface = spec.provider === 'cpu' ? undefined : cInterfaceOf(childEnv);
  void child.send(
    { kind: 'init', spec: { ...spec, cInterface } },
    graph === undefined ? [] : [graph],
  );
  return promise;
}

/** cuDNN ends a process that lacks one of its parts, and only its output tells why. */
function describeEnd(how: string, output: string): string {
  const ended = `the process ended: ${how}`;
  const lastWords = output.trim().split('\n').at(-1)?.trim().slice(0, LAST_WORDS_LENGTH_MAX);
  return lastWords ? `${ended} after "${lastWords}"` : ended;
}

/** The linker or cuDNN names a missing library on stderr; the binding does not. */
function explain(failure: string, output: string): string {
  const short = shortenNativeError(failure);
  const missing =
    /([\w.+-]+\.so[\w.]*): cannot open shared object file/.exec(output) ??
    /Unable to load any of \{([\w.+-]+)/.exec(output);
  return missing === null ? short : `${missing[1]} is missing (${short})`;
}
