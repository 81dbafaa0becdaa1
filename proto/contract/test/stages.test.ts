import { readFileSync } from 'node:fs';
import test from 'ava';
import { STAGES, type StageTimings, timesByStage } from '#contract/stages.ts';
import type { StageTimings as ProtoTimings } from '#gen/matting/v1/matte_service.ts';

const PROTO = new URL('../../matting/v1/matte_service.proto', import.meta.url);

test('the stages are the fields of StageTimings in the proto file', t => {
  const [, message = ''] =
    /message StageTimings \{([^}]*)\}/.exec(readFileSync(PROTO, 'utf8')) ?? [];
  const fields = [...message.matchAll(/^ {2}double (\w+) = /gm)].map(([, field]) => field);
  t.deepEqual(
    Object.keys(STAGES)
      .map(stage => `${stage}_ms`)
      .sort(),
    fields.sort(),
  );
});

test('times come by the names of their stages, in the order of the stages', t => {
  const timings: StageTimings & ProtoTimings = {
    sendMs: 10,
    encodeMs: 9,
    finishMs: 8,
    refineMs: 7,
    secondLookMs: 6,
    inferMs: 5,
    engineWaitMs: 4,
    decodeMs: 3,
    workerWaitMs: 2,
    receiveMs: 1,
  };
  t.deepEqual(timesByStage(timings), [
    ['receive', 1],
    ['worker_wait', 2],
    ['decode', 3],
    ['engine_wait', 4],
    ['infer', 5],
    ['second_look', 6],
    ['refine', 7],
    ['finish', 8],
    ['encode', 9],
    ['send', 10],
  ]);
  const unfinished = timesByStage({ ...timings, finishMs: 0, inferMs: 0 });
  t.deepEqual(
    unfinished.map(([stage]) => stage).filter(stage => stage === 'finish' || stage === 'infer'),
    ['infer'],
    'finishing has a time only where it was asked for',
  );
});
