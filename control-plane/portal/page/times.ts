import { type Child, html } from './html.ts';

/** `at`: milliseconds or ISO 8601. `none`: the text if there is no time. */
type Moment = [at: number | string | null, format: (instantMs: number) => string, none?: Child];

/** In UTC without scripts. times.js converts it to the reader's time. */
export function time(...moment: Moment): Child {
  return timeElement(moment);
}

export function ago(...moment: Moment): Child {
  return timeElement(moment, true);
}

function timeElement([at, format, none = null]: Moment, isLately?: true): Child {
  if (at === null) return none;
  const instant = new Date(at);
  return html`<time datetime=${instant.toISOString()} data-ago=${isLately}>${format(instant.getTime())}</time>`;
}

/** Puts nodes in place of a text's `{name}`s, as in `until {time}`. */
export function phrase(text: string, values: Readonly<Record<string, Child>>): Child[] {
  const parts = text.split(/\{(\w+)\}/);
  return parts.map((part, index) =>
    index % 2 === 1 && Object.hasOwn(values, part) ? values[part] : part,
  );
}
