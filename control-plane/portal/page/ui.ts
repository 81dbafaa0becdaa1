/** The parts that a page is put together of, under one name: `ui.button`, `ui.dataTable`. */

export * from './buttons.ts';
export * from './forms.ts';
export * from './links.ts';
export * from './moments.ts';
export * from './sections.ts';
export * from './tables.ts';
