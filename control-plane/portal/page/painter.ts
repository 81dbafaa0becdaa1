/**
 * The form by which people correct a cut-out: strokes and boxes that keep or erase, and the call of
 * the API that does the same. assets/paint.js paints; without scripts the form stays hidden.
 */

import type { VNode } from 'preact';
import { createSecret } from '../session/secret.ts';
import type { Words } from '../words/words.ts';
import { html } from './html.ts';
import * as ui from './ui.ts';

interface PainterProps {
  readonly words: Words;
  readonly csrf: string;
  /** The form is sent here, with `csrf`, `once`, `keep` and `erase`. */
  readonly action: string;
  /** The upright input, in pixels: the shapes are written in them. */
  readonly size: { readonly width: number; readonly height: number };
  /** The picture that was sent: below the cut-out where the page has it in no other way. */
  readonly original: string;
  /** The call that does the same, with KEEP_HERE and ERASE_HERE in place of the shapes. */
  readonly call: string;
}

export const [KEEP_HERE, ERASE_HERE] = ['{keep}', '{erase}'];
const NOTCHES = { min: 1, max: 40, value: 6 };

export function painter(props: PainterProps): VNode {
  const { words, csrf, action, size, original } = props;
  const said = words.painter;
  return html`<form class="painter section" method="post" action=${action}
      enctype="multipart/form-data" data-width=${size.width} data-height=${size.height}
      data-original=${original}
      data-one=${said.marks.one} data-other=${said.marks.other} data-full=${said.full}
      data-applying=${said.applying} data-failed=${said.failed} hidden>
    <input type="hidden" name="csrf" value=${csrf} />
    <input type="hidden" name="once" value=${createSecret()} />
    <input type="hidden" name="keep" value="" /><input type="hidden" name="erase" value="" />
    ${ui.fold({ label: said.title, isOpen: false }, surface(props))}
  </form>`;
}

function surface({ words, call }: PainterProps): VNode {
  const said = words.painter;
  const choice = (name: string, value: string, label: string, checked: boolean) =>
    html`<label class=${`choice ${value}`}><input type="radio" name=${name} value=${value}
      checked=${checked || undefined} />${label}</label>`;
  return html`<div><p class="lead">${said.lead}</p>
    <div class="painter-tools">
      <fieldset><legend class="silent">${said.kind}</legend>
        ${choice('kind', 'keep', said.keep, true)}${choice('kind', 'erase', said.erase, false)}
      </fieldset>
      <fieldset><legend class="silent">${said.tool}</legend>
        ${choice('tool', 'brush', said.brush, true)}${choice('tool', 'box', said.box, false)}
      </fieldset>
      <label class="brush-size">${said.size}
        <input type="range" name="size" min=${NOTCHES.min} max=${NOTCHES.max} value=${NOTCHES.value} /></label>
      <button type="button" class="button quiet" data-undo disabled>${said.undo}</button>
      ${ui.button({ label: said.apply, disabled: true })}
      <span class="hint" role="status"></span>
    </div>
    <figure class="canvas chequered painting">
      <canvas tabindex="0" role="img" aria-label=${said.surface} aria-describedby="painter-keys"></canvas>
    </figure>
    <p class="hint" id="painter-keys">${said.keys}</p>
    <details><summary>${said.call}</summary><div data-template=${call}>
      ${ui.codeBlock(call, words.common, said.call)}</div></details></div>`;
}
