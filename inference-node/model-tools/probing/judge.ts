/** Derives a manifest's facts from the values of runs on pictures with a known subject. Pure. */

import type { Size } from '@matting/proto/contract/finishing.ts';
import {
  type FormSpec,
  formEnds,
  matteShape,
  type TensorFacts,
} from '@matting/serving/engine/child/form-ends.ts';
import type { OutputValues } from '@matting/serving/engine/probe/probe-process.ts';
import { ModelError } from '@matting/serving/models/model-error.ts';
import type { Activation, GraphForm } from '@matting/serving/models/prepared-model.ts';
import { type CheckPicture, meanAt } from './check-pictures.ts';
import type { NamedNormalisation, Probe, ProbeWishes } from './probe.ts';
import type { Matte } from './sheet.ts';
import { activationOf, isConstant, isInverted, isProbable, type ValueRange } from './verdict.ts';

/** A graph whose ends are known; the values are those of its one output. */
export interface KnownGraph {
  readonly wishes: ProbeWishes;
  readonly input: TensorFacts;
  readonly output: TensorFacts;
  readonly form: GraphForm;
  readonly spec: FormSpec;
}

/** One run of one picture. */
export interface PictureRun {
  readonly normalisation: NamedNormalisation;
  /** The picture in the input, and its size there. */
  readonly rgb: Uint8Array;
  readonly size: Size;
  readonly output: OutputValues;
  readonly values: Float32Array;
}

interface CheckRun {
  readonly check: CheckPicture;
  readonly run: PictureRun;
}

type Verdict = Pick<
  Probe,
  'activation' | 'inverted' | 'normalisesItself' | 'range' | 'constant' | 'warnings'
>;

/**
 * @param checked by the wished normalisation @param shown one picture by each normalisation
 * @throws ModelError `prepare` where there are no numbers to judge
 */
export function judge(
  graph: KnownGraph,
  checked: readonly CheckRun[],
  shown: readonly PictureRun[],
): Verdict {
  const { mean, activation: asked } = graph.wishes;
  const own = checked.map(({ run }) => run);
  if (own.some(({ output }) => output.notFinite)) {
    throw new ModelError('prepare', 'the graph answers with values that are not numbers');
  }
  const finite = shown.filter(({ output }) => !output.notFinite);
  const warnings = shown
    .filter(run => !finite.includes(run))
    .map(
      ({ normalisation: { of } }) =>
        `normalised by ${of} it answers with values that are not numbers`,
    );
  const range = rangeOf(mean === undefined ? [...own, ...finite] : own);
  const constant = isConstant(range);
  const measured = measuredActivation(graph, range, own);
  const activation = asked ?? measured;
  const shownRange = range.map(value => value.toPrecision(3)).join(' to ');
  if (measured !== undefined && activation !== measured) {
    const fits = `values from ${shownRange} fit ${measured}`;
    warnings.push(`--activation ${activation} stands as asked for, but ${fits}`);
  }
  if (constant) warnings.push(`its output is ${range[0].toPrecision(3)} everywhere: no matte`);
  const inverted =
    activation && !constant ? isInverted(subjectsOf(graph, checked, activation)) : false;
  if (inverted === undefined) {
    warnings.push('it does not clearly separate the subjects of the drawn pictures');
  }
  const normalisesItself = graph.form.inputType === 'uint8' || (!constant && areSame(finite));
  if (normalisesItself && mean !== undefined) {
    const rest = graph.form.inputType === 'uint8' ? '' : ', but for what differs between channels';
    warnings.push(`the graph normalises by itself: --mean and --std are without effect${rest}`);
  }
  return {
    ...{ normalisesItself, range, constant, warnings },
    ...(activation && { activation }),
    ...(inverted && { inverted }),
  };
}

function rangeOf(runs: readonly PictureRun[]): ValueRange {
  const least = Math.min(...runs.map(({ output }) => output.range[0]));
  return [least, Math.max(...runs.map(({ output }) => output.range[1]))];
}

function measuredActivation(
  { form, input }: KnownGraph,
  range: ValueRange,
  [run]: readonly PictureRun[],
): Activation | undefined {
  if (run === undefined || isConstant(range)) return undefined;
  const [images] = form.layout.startsWith('n') ? (input.shape ?? []) : [];
  const { type, dims } = run.output;
  const value = { type, dims, data: run.values };
  const { classes } = matteShape(value, form, typeof images === 'number' ? images : 1);
  if (classes === 1) return activationOf(range);
  return isProbable(range) ? 'none' : 'softmax';
}

function subjectsOf(graph: KnownGraph, checked: readonly CheckRun[], activation: Activation) {
  return checked.map(({ check, run }) => {
    const matte = matteOf(graph, run, { activation });
    return {
      subject: meanAt(matte, check.subject),
      background: meanAt(matte, check.background),
    };
  });
}

/** Scaled and shifted in several ways, all channels alike, a picture gave one output. */
function areSame(runs: readonly PictureRun[]): boolean {
  const [first, ...others] = runs.filter(({ normalisation: { mean, std } }) =>
    [mean, std].every(([red, green, blue]) => red === green && green === blue),
  );
  if (first === undefined || others.length === 0) return false;
  const [least, most] = first.output.range;
  // The tolerance is one level of 255.
  const within = (most - least) / 255;
  return others.every(({ values }) =>
    values.every((value, index) => Math.abs(value - (first.values[index] ?? 0)) <= within),
  );
}

/** Makes the matte as an engine does; values that are not numbers make an empty one. */
export function matteOf(
  { spec, form, input, output }: KnownGraph,
  { rgb, size, values, output: { dims, type, notFinite } }: PictureRun,
  { activation = 'none', inverted = false }: Pick<Probe, 'activation'> & { inverted?: boolean },
): Matte {
  if (notFinite) return { alpha: new Uint8Array(1), width: 1, height: 1 };
  const ends = formEnds({ ...spec, activation }, { ...form, inverted }, { input, output });
  // It has to know where in its input the picture is.
  ends.input(rgb, size);
  const answer = ends.answer({ [output.name]: { type, dims, data: values } });
  return { alpha: answer.alpha, ...answer.size };
}
