/**
 * The playground: the form, what became of its picture, and the same call as code. Its script
 * (assets/playground.js) sends the form in place, puts the outcome of the job's own page into
 * `#outcome`, and adds the original behind a slider.
 */
import type { VNode } from 'preact';
import type { ErrorCode } from '#contract/errors.ts';
import { OUTPUT_FORMATS } from '#contract/formats.ts';
import type { Job, PublicJobState } from '../../../../domain/job.ts';
import type { PlaygroundAllowance } from '../../../../services/playground/use-playground.ts';
import type { Formats } from '../../words/formats.ts';
import { fill, type Words } from '../../words/words.ts';
import { button, linkButton } from '../components/buttons.ts';
import { selectField, textField } from '../components/fields.ts';
import { codeBlock, emptyState, notice } from '../components/marks.ts';
import { resultStage } from '../components/result-stage.ts';
import { type Child, html } from '../html.ts';
import { codeSamples } from './code-samples.ts';

export type PlaygroundRefusal =
  | { readonly kind: 'allowance-used' | 'too-many-open' | 'busy' }
  | {
      readonly kind: 'invalid';
      readonly code: ErrorCode;
      /** The field of the API that is meant, where the error names one. */
      readonly field: string | undefined;
    };

export interface PlaygroundProps {
  readonly words: Words;
  readonly formats: Formats;
  readonly csrf: string;
  /** Random, of this form: sent twice it is one picture. */
  readonly once: string;
  readonly baseUrl: string;
  /** Undefined: the playground is off. */
  readonly allowance: PlaygroundAllowance | undefined;
  /** What stands in the form's fields, by the API's names. */
  readonly options: ReadonlyMap<string, string>;
  readonly refusal: PlaygroundRefusal | undefined;
  readonly job: (Job & { readonly status: PublicJobState }) | undefined;
}

export function playgroundPage(props: PlaygroundProps): VNode {
  const { words, allowance } = props;
  if (allowance === undefined) {
    return html`<div class="panel">${emptyState(words.playground.off)}</div>`;
  }
  return html`<div class="playground">
    <div id="try">${refusalNotice(props, allowance)}${form(props, allowance)}</div>
    <div id="outcome" aria-live="polite">${outcome(props)}</div>
    ${theCall(props)}
  </div>`;
}

function refusalNotice(props: PlaygroundProps, allowance: PlaygroundAllowance): Child {
  const { refusal, words } = props;
  const said = words.playground;
  if (refusal === undefined) {
    return allowance.left > 0 ? null : notice('warning', usedUp(props, allowance));
  }
  switch (refusal.kind) {
    case 'allowance-used':
      return notice('warning', usedUp(props, allowance));
    case 'too-many-open':
      return notice('warning', said.tooManyOpen);
    case 'busy':
      return notice('warning', said.busy);
    case 'invalid':
      return invalidField(refusal) === 'other'
        ? notice('bad', said.invalid.other)
        : notice('bad', words.common.checkFields);
  }
}

function usedUp({ words, formats }: PlaygroundProps, allowance: PlaygroundAllowance): string {
  const { imagesMax, resetsAtMs } = allowance;
  const time = formats.dateTime(resetsAtMs);
  return fill(words.playground.usedUp, { count: formats.credits(imagesMax), time });
}

type InvalidField = keyof Words['playground']['invalid'];

/** The field that the error belongs beside. */
function invalidField(refusal: PlaygroundRefusal | undefined): InvalidField | undefined {
  if (refusal?.kind !== 'invalid') return undefined;
  const { code, field } = refusal;
  const names: Partial<Record<string, InvalidField>> = {
    image_file: 'image_file',
    image_url: 'image_file',
    image_base64: 'image_file',
    background_file: 'background_file',
    background_url: 'background_file',
    background: 'background',
    output_format: 'output_format',
    channels: 'channels',
    crop: 'crop',
    crop_margin: 'crop_margin',
    scale: 'scale',
    position: 'position',
    size_max_megapixels: 'size_max_megapixels',
    output_width: 'output_width',
    output_height: 'output_height',
  };
  const named = names[field ?? ''];
  if (named !== undefined) return named;
  return PICTURE_ERRORS.has(code) ? 'image_file' : 'other';
}

const PICTURE_ERRORS: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  'INVALID_IMAGE_SOURCE',
  'UNSUPPORTED_IMAGE_FORMAT',
  'IMAGE_TOO_LARGE',
  'IMAGE_RESOLUTION_TOO_LARGE',
]);

function form(props: PlaygroundProps, { left, resetsAtMs }: PlaygroundAllowance): VNode {
  const { words, formats, csrf, once, refusal } = props;
  const said = words.playground;
  const note = fill(said.leftNote, { time: formats.dateTime(resetsAtMs) });
  const count = fill(left === 1 ? said.left.one : said.left.other, {
    count: formats.credits(left),
  });
  // The token comes first: nothing of a file is taken before it. The files come last.
  return html`<form method="post" action="/account/playground" enctype="multipart/form-data"
      class="panel padded form" id="playground-form"
      data-sending=${said.sending} data-sent=${said.sent} data-failed=${said.failedToSend}>
    <input type="hidden" name="csrf" value=${csrf} />
    <input type="hidden" name="once" value=${once} />
    ${options(props)}
    ${fileField({
      name: 'image_file',
      label: said.picture,
      hint: said.pictureHint,
      error: errorOf(words, refusal, 'image_file'),
      drop: said.chosen,
    })}
    <div class="actions">
      ${button({ label: said.send, disabled: left === 0 })}
      ${button({ label: said.demo, kind: 'secondary', name: 'demo', value: '1', disabled: left === 0 })}
    </div>
    <p class="hint" role="status" data-progress hidden></p>
    <p class="hint"><b>${count}</b> ${note}</p>
  </form>`;
}

function errorOf(
  words: Words,
  refusal: PlaygroundRefusal | undefined,
  field: InvalidField,
): string | undefined {
  return invalidField(refusal) === field ? words.playground.invalid[field] : undefined;
}

function options(props: PlaygroundProps): VNode {
  const { words, options: values, refusal } = props;
  const said = words.playground;
  const error = (field: InvalidField) => errorOf(words, refusal, field);
  const text = (name: InvalidField, label: string, more: object = {}) =>
    textField({ name, label, value: values.get(name) ?? '', error: error(name), ...more });
  return html`<div class="row">
      ${selectField({
        name: 'output_format',
        label: said.format,
        value: values.get('output_format') ?? 'png',
        options: OUTPUT_FORMATS.filter(format => format !== 'zip').map(format => ({
          value: format,
          label: FORMAT_NAMES[format] ?? format,
        })),
        error: error('output_format'),
      })}
      ${text('background', said.background, { hint: said.backgroundHint, placeholder: 'white, #f5f5f5' })}
    </div>
    ${checkboxOn('crop', said.crop, values.get('crop') === 'true', error('crop'))}
    <details open=${hasMore(values, refusal) || undefined}>
      <summary>${said.more}</summary>
      <div class="stack">
        <div class="row">
          ${text('crop_margin', said.cropMargin, { placeholder: '5%' })}
          ${text('scale', said.scale, { placeholder: '85%' })}
          ${text('position', said.position, { placeholder: 'center' })}
        </div>
        <div class="row">
          ${text('output_width', said.width, { inputmode: 'numeric' })}
          ${text('output_height', said.height, { inputmode: 'numeric' })}
          ${text('size_max_megapixels', said.sizeMax, { inputmode: 'decimal' })}
        </div>
        <div class="row">
          ${selectField({
            name: 'channels',
            label: said.channels,
            value: values.get('channels') ?? '',
            options: [
              { value: '', label: said.rgba },
              { value: 'alpha', label: said.alpha },
            ],
            error: error('channels'),
          })}
          ${fileField({
            name: 'background_file',
            label: said.backgroundFile,
            error: error('background_file'),
          })}
        </div>
      </div>
    </details>`;
}

const FORMAT_NAMES: Readonly<Record<string, string>> = {
  png: 'PNG',
  webp: 'WebP',
  avif: 'AVIF',
  jxl: 'JPEG XL',
  jpeg: 'JPEG',
};

const MORE = [
  'crop_margin',
  'scale',
  'position',
  'output_width',
  'output_height',
  'size_max_megapixels',
  'channels',
] as const;

function hasMore(
  values: ReadonlyMap<string, string>,
  refusal: PlaygroundRefusal | undefined,
): boolean {
  const wrong = invalidField(refusal);
  return MORE.some(name => values.has(name) || wrong === name) || wrong === 'background_file';
}

/** A box that sends `true`, as the API has it. */
function checkboxOn(
  name: string,
  label: string,
  checked: boolean,
  error: string | undefined,
): VNode {
  return html`<div class="field">
    <label class="choice"><input type="checkbox" name=${name} value="true" checked=${checked}
      aria-describedby=${error === undefined ? undefined : `${name}-error`} /><span>${label}</span></label>
    ${error === undefined ? null : html`<span class="error" id=${`${name}-error`}>${error}</span>`}
  </div>`;
}

function fileField(props: {
  readonly name: string;
  readonly label: string;
  readonly hint?: string;
  readonly error?: string | undefined;
  /** The field takes what is dropped or pasted; said of the picture that was chosen. */
  readonly drop?: string;
}): VNode {
  const { name, label, hint, error, drop } = props;
  const ids = [hint ? `${name}-hint` : '', error === undefined ? '' : `${name}-error`];
  const described = ids.filter(id => id !== '').join(' ') || undefined;
  const wrong = error === undefined ? '' : ' wrong';
  return html`<div class=${`field${drop === undefined ? '' : ' drop'}${wrong}`}
      data-drop=${drop}>
    <label for=${name}>${label}</label>
    <input type="file" id=${name} name=${name} accept=${ACCEPT} aria-describedby=${described}
      aria-invalid=${error === undefined ? undefined : 'true'} />
    ${hint ? html`<span class="hint" id=${`${name}-hint`}>${hint}</span>` : null}
    ${error === undefined ? null : html`<span class="error" id=${`${name}-error`}>${error}</span>`}
  </div>`;
}

const ACCEPT = 'image/jpeg,image/png,image/webp,image/avif,image/jxl,.jxl';

function outcome({ job, words, formats }: PlaygroundProps): Child {
  if (job === undefined) return null;
  const said = words.playground;
  const { status, failure, result } = job;
  const isOpen = status === 'queued' || status === 'processing';
  const path = `/account/playground/${job.id}/result`;
  const size =
    result &&
    fill(said.size, {
      width: formats.credits(result.width),
      height: formats.credits(result.height),
      bytes: formats.bytes(result.bytes),
    });
  return html`<section class="section" data-state=${status} aria-labelledby="outcome-head">
    <div class="section-head">
      <div><h2 id="outcome-head">${said.outcome}</h2>
        <p class="soft">${said.state[status]}${isOpen ? ` ${said.refreshing}` : ''}</p></div>
      ${status === 'succeeded' ? linkButton({ href: path, label: said.download, kind: 'primary', download: true }) : null}
    </div>
    ${status === 'failed' && failure ? notice('bad', failureText(words, failure)) : null}
    ${status === 'succeeded' ? resultStage({ words, path, format: job.outputFormat }) : null}
    ${status === 'succeeded' && size ? html`<p class="hint">${size}</p>` : null}
  </section>`;
}

function failureText(words: Words, failure: NonNullable<Job['failure']>): string {
  const { failures, playground } = words;
  const known = Object.hasOwn(failures, failure.code)
    ? failures[failure.code as keyof typeof failures]
    : fill(failures.other, { code: failure.code });
  return `${known} ${failure.retryable ? playground.given : playground.counted}`;
}

function theCall({ words, baseUrl, options: values }: PlaygroundProps): VNode {
  const said = words.playground;
  const samples = codeSamples({ baseUrl, options: values, hasBackgroundFile: false });
  return html`<section class="section" id="call">
    <h2>${said.call}</h2>
    <p class="lead">${said.callHint}</p>
    <div class="stack">${samples.map(
      ({ name, text }, index) => html`<details open=${index === 0 || undefined}>
        <summary>${name}</summary>
        ${codeBlock(text, words.common, fill(said.callOf, { name }))}
      </details>`,
    )}</div>
  </section>`;
}
