/**
 * The form for corrections of a cut-out by strokes and boxes, and the equivalent call of the API.
 * assets/paint.js paints, assets/correct.js sends. Without scripts the form stays hidden.
 */

import type { VNode } from 'preact';
import { createSecret } from '../session/secret.ts';
import type { Words } from '../words/words.ts';
import { html } from './html.ts';
import * as ui from './ui.ts';

interface PainterProps {
  readonly words: Words;
  readonly csrf: string;
  readonly action: string;
  /** Of the upright input, in pixels, which are the unit of the shapes. */
  readonly size: { readonly width: number; readonly height: number };
  readonly original: string;
  readonly back: string | undefined;
  /** The equivalent call, with KEEP_HERE and ERASE_HERE in place of the shapes. */
  readonly call: string;
}

export const [KEEP_HERE, ERASE_HERE] = ['{keep}', '{erase}'];
const NOTCHES = { min: 1, max: 40, value: 6 };

export function painter(props: PainterProps): VNode {
  const { words, csrf, action, size, original } = props;
  const text = words.painter;
  return html`<form class="painter section" method="post" action=${action}
      enctype="multipart/form-data" data-width=${size.width} data-height=${size.height}
      data-original=${original}
      data-one=${text.marks.one} data-other=${text.marks.other} data-full=${text.full}
      data-empty=${text.empty} data-sending=${text.sending} data-failed=${text.failed}
      data-queued=${words.playground.state.queued} data-processing=${text.looking}
      data-changed=${text.changed} data-unchanged=${text.unchanged} data-done=${text.done}
      data-keep-box=${text.hints.keepBox} data-keep-brush=${text.hints.keepBrush}
      data-erase-box=${text.hints.eraseBox} data-erase-brush=${text.hints.eraseBrush} hidden>
    <input type="hidden" name="csrf" value=${csrf} />
    <input type="hidden" name="once" value=${createSecret()} />
    <input type="hidden" name="keep" value="" /><input type="hidden" name="erase" value="" />
    ${ui.fold({ label: text.title, isOpen: false }, surface(props))}
  </form>`;
}

function surface({ words, call, back }: PainterProps): VNode {
  const text = words.painter;
  const choice = (name: string, value: string, label: string, checked: boolean) =>
    html`<label class=${`choice ${value}`}><input type="radio" name=${name} value=${value}
      checked=${checked || undefined} />${label}</label>`;
  return html`<div><p class="lead">${text.lead}</p>
    <div class="painter-tools">
      <fieldset><legend class="silent">${text.kind}</legend>
        ${choice('kind', 'keep', text.keep, true)}${choice('kind', 'erase', text.erase, false)}
      </fieldset>
      <fieldset><legend class="silent">${text.tool}</legend>
        ${choice('tool', 'box', text.box, true)}${choice('tool', 'brush', text.brush, false)}
      </fieldset>
      <label class="brush-size">${text.size}
        <input type="range" name="size" min=${NOTCHES.min} max=${NOTCHES.max} value=${NOTCHES.value} /></label>
    </div>
    <p class="painter-hint" data-hint aria-live="polite"></p>
    <figure class="canvas chequered painting">
      <canvas tabindex="0" role="application" aria-label=${text.surface} aria-describedby="painter-keys"></canvas>
      <div class="looking" role="progressbar" aria-labelledby="painter-status"></div>
    </figure>
    <p class="painter-status" id="painter-status" role="status"></p>
    <div class="actions">
      ${ui.button({ label: text.apply })}
      <button type="button" class="button secondary" data-undo>${text.undo}</button>
      <button type="button" class="button secondary" data-redo>${text.redo}</button>
      <a class="button secondary" data-back href=${back ?? ''} hidden=${back === undefined}>${text.back}</a>
    </div>
    <p class="hint" id="painter-keys">${text.keys}</p>
    <details><summary>${text.call}</summary><div data-template=${call}>
      ${ui.codeBlock(call, words.common, text.call)}</div></details></div>`;
}
