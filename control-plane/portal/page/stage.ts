/**
 * The words of a drop zone, and the stage: a cut-out on a ground, with its original. Works without
 * scripts. assets/compare.js makes the comparison a slider.
 */

import type { OutputFormat } from '@matting/proto/contract/formats.ts';
import type { VNode } from 'preact';
import type { Words } from '../words/words.ts';
import { assetHref } from './assets.ts';
import { ACCOUNT_PATH, type Child, html } from './html.ts';
import { icon } from './icons.ts';

/** For people without a picture at hand. The playground's form sends these names. */
export const SAMPLES = ['teapot', 'duck', 'cactus', 'camera'] as const;
export type Sample = (typeof SAMPLES)[number];

export function sampleFile(sample: Sample): string {
  return sample === 'teapot' ? 'demo.jpg' : `sample-${sample}.jpg`;
}

export function sampleHref(sample: Sample): string {
  return assetHref(ACCOUNT_PATH, sampleFile(sample));
}

const SHOWN_BY_BROWSERS: Readonly<Record<OutputFormat, boolean>> = {
  png: true,
  webp: true,
  avif: true,
  jxl: false,
  jpeg: true,
  zip: false,
};

const GROUNDS = ['chequered', 'white', 'black'] as const;

/**
 * A cut-out on a ground that the person chooses: chequered, white, black, or a colour.
 * @param original for comparison; undefined: it is not kept
 * @param loading lazy: only when it is in view
 */
export function resultStage(
  words: Words,
  path: string,
  format: OutputFormat,
  original: string | undefined,
  loading?: 'lazy',
): VNode {
  const text = words.playground;
  if (!SHOWN_BY_BROWSERS[format]) return html`<p class="hint">${text.notShown}</p>`;
  return html`<div class="stage" data-original=${original} ...${comparedBy(words)}>
    <figure class="canvas chequered"><img class="picture" src=${path} alt=${text.result}
      loading=${loading} /></figure>
    <fieldset class="swatches"><legend class="silent">${text.ground}</legend>
      ${GROUNDS.map(
        ground => html`<label class=${`swatch ${ground}`} title=${text[ground]}>
          <input type="radio" name="ground" value=${ground} checked=${ground === 'chequered'} />
          <span class="silent">${text[ground]}</span></label>`,
      )}
      <label class="swatch own" data-own hidden title=${text.own}>
        <input type="radio" name="ground" value="own" /><span class="silent">${text.own}</span>
        <input type="color" value="#3f8f5f" aria-label=${text.ownColour} /></label>
    </fieldset>
  </div>`;
}

export function demoStage(words: Words): VNode {
  const text = words.playground;
  const cutOut = assetHref(ACCOUNT_PATH, 'demo-cutout.webp');
  return html`<div class="stage" ...${comparedBy(words)}>
    <figure class="canvas chequered">
      <img class="picture" src=${cutOut} alt=${text.result} width="900" height="675" />
      <img class="before" src=${sampleHref('teapot')} alt=${text.before} />
    </figure>
  </div>`;
}

function comparedBy({ playground: text }: Words): Record<string, string> {
  return { 'data-before': text.before, 'data-after': text.result, 'data-slider': text.slider };
}

export function dropWords(title: string, text: Child): VNode {
  return html`<span class="drop-icon">${icon('picture')}</span>
    <span class="drop-title">${title}</span><span class="soft">${text}</span>`;
}
