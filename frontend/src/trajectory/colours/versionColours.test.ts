import { describe, expect, it } from "vitest";
import { itemAt } from "../../values/columns";
import { contrast, type Lab, labOf, linearOf, type Rgb } from "./colourSpace";
import { inkUpon, paletteOf } from "./colours";
import { colourOfVersion, rgbOfVersion } from "./versionColours";

const VERSIONS = Array.from({ length: 200 }, (_, version) => version);
// What full blindness for red, green or blue makes of linear light (Machado, Oliveira and Fernandes, 2009, severity 1).
const VISION_NAMES = ["full", "without red", "without green", "without blue"] as const;
type Vision = (typeof VISION_NAMES)[number];
const VISIONS: Record<Vision, readonly [Rgb, Rgb, Rgb]> = {
  full: [
    [1, 0, 0],
    [0, 1, 0],
    [0, 0, 1],
  ],
  "without red": [
    [0.152286, 1.052583, -0.204868],
    [0.114503, 0.786281, 0.099216],
    [-0.003882, -0.048116, 1.051998],
  ],
  "without green": [
    [0.367322, 0.860646, -0.227968],
    [0.280085, 0.672501, 0.047413],
    [-0.01182, 0.04294, 0.968881],
  ],
  "without blue": [
    [1.255528, -0.076749, -0.178779],
    [-0.078411, 0.930809, 0.147602],
    [0.004733, 0.691367, 0.3039],
  ],
};
/** Oklab distances: about 0.02 is the least that is seen at all. */
const CLEAR = 0.06;
const SEEN = 0.03;

function seenBy(vision: Vision, colour: string): Lab {
  const [red, green, blue] = VISIONS[vision];
  const light = linearOf(colour);
  const through = (row: Rgb) => Math.max(row[0] * light[0] + row[1] * light[1] + row[2] * light[2], 0);
  return labOf([through(red), through(green), through(blue)]);
}

function distance(one: Lab, other: Lab): number {
  return Math.hypot(one[0] - other[0], one[1] - other[1], one[2] - other[2]);
}

function leastDistance(vision: Vision, apart: number): number {
  const seen = VERSIONS.map((version) => seenBy(vision, colourOfVersion(version)));
  return Math.min(...seen.slice(apart).map((lab, index) => distance(lab, itemAt(seen, index))));
}

describe("colours of versions", () => {
  it.each(VISION_NAMES)("keep neighbours clearly distinct for vision %s", (vision) => {
    for (const apart of [1, 2, 3]) expect(leastDistance(vision, apart), `${apart} apart`).toBeGreaterThan(CLEAR);
  });

  it.each(VISION_NAMES)("keep the versions of a group distinct for vision %s", (vision) => {
    for (let apart = 4; apart < 10; apart++)
      expect(leastDistance(vision, apart), `${apart} apart`).toBeGreaterThan(SEEN);
  });

  it("keep any twenty consecutive versions distinct for full vision", () => {
    for (let apart = 4; apart < 20; apart++)
      expect(leastDistance("full", apart), `${apart} apart`).toBeGreaterThan(CLEAR);
  });

  it("are colours that a screen can show", () => {
    for (const channel of VERSIONS.flatMap(rgbOfVersion)) {
      expect(channel).toBeGreaterThanOrEqual(0);
      expect(channel).toBeLessThanOrEqual(1);
    }
  });

  it.each(["light", "dark"] as const)(
    "stand out from the %s background, from prompts and from unknown versions",
    (theme) => {
      const palette = paletteOf(theme);
      for (const colour of VERSIONS.map(colourOfVersion)) {
        expect(contrast(colour, palette.ground)).toBeGreaterThan(1.8);
        for (const other of [palette.prompt, palette.unknown])
          expect(distance(seenBy("full", colour), seenBy("full", other))).toBeGreaterThan(0.06);
      }
    },
  );
});

describe("the text on a token", () => {
  it.each(["light", "dark"] as const)("is readable on every colour of a %s forest", (theme) => {
    const { probabilities, advantages } = paletteOf(theme);
    for (const colour of [...probabilities, ...advantages, ...VERSIONS.map(colourOfVersion)])
      expect(contrast(inkUpon(colour), colour), colour).toBeGreaterThanOrEqual(4.5);
  });
});
