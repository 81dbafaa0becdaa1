/**
 * A cut-out on a ground of one's choice: chequered, white, black, or a colour that a script sets.
 * The choice works without scripts (style.css); assets/compare.js adds the own colour, and the
 * original behind a slider where it knows it.
 */
import type { VNode } from 'preact';
import type { OutputFormat } from '#contract/formats.ts';
import type { Words } from '../../words/words.ts';
import { html } from '../html.ts';

export interface ResultStageProps {
  readonly words: Words;
  /** Where its bytes are. */
  readonly path: string;
  readonly format: OutputFormat;
}

export function resultStage({ words, path, format }: ResultStageProps): VNode {
  const said = words.playground;
  if (format === 'jxl' || format === 'zip') return html`<p class="hint">${said.notShown}</p>`;
  return html`<div class="stage" data-before=${said.before} data-slider=${said.slider}>
    <fieldset class="grounds"><legend class="silent">${said.ground}</legend>
      ${GROUNDS.map(
        ground => html`<label class="choice">
          <input type="radio" name="ground" value=${ground} checked=${ground === 'chequered'} />
          <span>${said[ground]}</span></label>`,
      )}
      <label class="choice" data-own hidden>
        <input type="radio" name="ground" value="own" /><span>${said.own}</span>
        <input type="color" value="#3f8f5f" aria-label=${said.ownColour} /></label>
    </fieldset>
    <figure class="canvas chequered"><img class="picture" src=${path} alt=${said.result} /></figure>
  </div>`;
}

const GROUNDS = ['chequered', 'white', 'black'] as const;
